"""Why a chunk was missed: causes with evidence, systematic ones first, and what would help."""

from chunkrecall.diagnosis.causes import CAUSES, Certainty, Finding
from chunkrecall.diagnosis.diagnose import diagnose
from chunkrecall.diagnosis.drafting import candidate_draft
from chunkrecall.diagnosis.judgement import Candidate, Judged
from chunkrecall.diagnosis.result import Diagnosis, Miss, Remedy

__all__ = [
    "CAUSES",
    "Candidate",
    "Certainty",
    "Diagnosis",
    "Finding",
    "Judged",
    "Miss",
    "Remedy",
    "candidate_draft",
    "diagnose",
]
