"""Settings: environment variables that begin with ``DPICL_``. Nothing ships with a default secret."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What an operator sets; each field is the environment variable ``DPICL_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="DPICL_", extra="ignore", frozen=True)

    database_url: str = "sqlite:///var/dpicl.sqlite"
    """SQLite file or PostgreSQL server of knowledge bases, ledger and keys."""
    witness_url: SecretStr | None = None
    """A second database, never restored together with the first: it notices a ledger restored from a backup. A file
    beside a SQLite database unless set; with PostgreSQL it must be set, to `none` to do without."""
    migrate: Literal["auto", "never"] = "auto"
    """Whether a start brings the schema up to date (`auto`), or refuses one that is not and leaves that to
    `dpicl migrate` (`never`)."""
    encryption_key: SecretStr | None = None
    """32 random bytes in base64, under which exemplars are encrypted at rest."""
    encryption_key_file: Path | None = None
    """A file that holds the key instead (a mounted secret)."""
    development: bool = False
    """Allow a published key. For trying things out on made-up data, never for real exemplars."""

    latency_grain_ms: int | None = Field(default=None, ge=0, le=600_000)
    """Answers leave at multiples of this after their charge. It must be at least twice what a task's largest slots
    take, which the service measures when it starts. A language model needs it; else each task gets the smallest round
    one."""
    latency_unpadded: bool = False
    """Let answers leave when they are ready. How long they take then depends on private exemplars."""
    query_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Slots not answered by then abstain."""
    lease_s: float = Field(default=360.0, gt=0, le=86_400)
    """A charge whose holder has not settled it by then counts as spent without an answer."""
    max_queries_in_flight: int = Field(default=32, ge=1, le=10_000)
    """Queries an ingress replica works on at once; more are told to come back (429)."""
    alert_webhook: SecretStr | None = None
    """An address to POST JSON to when a task has given 75, 90 and 100 % of its answers. It may hold a secret."""
    max_upload_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Largest body of a bulk upload over REST."""
    metrics_open: bool = False
    """Show `/metrics` to whoever asks, not only to holders of a key."""

    @property
    def longest_grain_s(self) -> float:
        """What a charge's lease leaves for a latency grain, in seconds.

        A query waits for the probe, the sample, the slots, and perhaps each slot alone; then for its grain to be over,
        and for the database.
        """
        return self.lease_s - 4 * self.query_timeout_s - 60

    @model_validator(mode="after")
    def _lease_outlives_a_query(self) -> Settings:
        if self.longest_grain_s < (self.latency_grain_ms or 0) / 1000:
            raise ValueError(
                "DPICL_LEASE_S must be at least four times DPICL_QUERY_TIMEOUT_S, DPICL_LATENCY_GRAIN_MS and a minute"
            )
        return self

    @model_validator(mode="after")
    def _says_one_thing_of_latency(self) -> Settings:
        if self.latency_unpadded and self.latency_grain_ms is not None:
            raise ValueError("DPICL_LATENCY_UNPADDED=true leaves no room for DPICL_LATENCY_GRAIN_MS: unset one of them")
        return self

    @field_validator("latency_grain_ms")
    @classmethod
    def _no_grain_is_stated(cls, grain: int | None) -> int | None:
        if grain == 0:
            raise ValueError(
                "a grain of 0 lets latency tell of private exemplars: set it above what the engine's slowest answer "
                "takes, or set DPICL_LATENCY_UNPADDED=true instead"
            )
        return grain
