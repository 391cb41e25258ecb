"""Files of rows that forms bring, with the columns that a person names for fields."""

from collections.abc import Iterable

from starlette.datastructures import UploadFile

from service.gateway.dashboard.pages import Visit
from service.operations.fields import FieldError
from service.operations.uploads import FormFile


async def sent_file(visit: Visit, otherwise: str) -> FormFile:
    """The file that a form brings.

    Args:
        visit: visit that brings the form.
        otherwise: advice where it brings none, a sentence without its end.

    Raises:
        FieldError: it brings none.
    """
    file = visit.form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise FieldError("file", otherwise)
    return FormFile(file.filename, await file.read(), visit.field("encoding") or None)


def named_columns(visit: Visit, fields: Iterable[str]) -> dict[str, str]:
    """Names of columns, by field, as a form has them; fields whose column has the same name are left out."""
    return {field: column for field in fields if (column := visit.field(f"column_{field}"))}
