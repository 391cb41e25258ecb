"""The mechanisms that answer, one file each; a further one is registered here.

A file holds what the service does with its mechanism. Two things are elsewhere. Its parameters are in
``accounting/plans/mechanisms.py``, since plans are read and calibrated without the service; a mechanism that is the
service's alone may keep them in its own file. Its noiseless answer is registered with
``service/answering/trials/consensus.py``, which what answers private queries must not import. Registering an adapter
makes all of it known.
"""

from service.answering.mechanisms.adapter import register
from service.answering.mechanisms.common_sentences import CommonSentencesAdapter
from service.answering.mechanisms.embedding_mean import EmbeddingMeanAdapter
from service.answering.mechanisms.keyword_joint_em import KeywordJointEmAdapter
from service.answering.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.rnm_gaussian import RnmGaussianAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter
from service.answering.mechanisms.synthetic_exemplars import SyntheticExemplarsAdapter
from service.answering.mechanisms.token_ensemble import TokenEnsembleAdapter
from service.answering.mechanisms.written_texts import WrittenTextsAdapter

register(RnmGaussianAdapter)
register(SoftmaxRegressionAdapter)
register(PrototypesAdapter)
register(SyntheticExemplarsAdapter)
register(EmbeddingMeanAdapter)
register(KeywordJointEmAdapter)
register(KeywordPtrAdapter)
register(CommonSentencesAdapter)
register(TokenEnsembleAdapter)
register(WrittenTextsAdapter)
