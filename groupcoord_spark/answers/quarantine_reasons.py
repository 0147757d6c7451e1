"""What each reason of the table ``quarantined_records`` says, in a sentence, from the places where the reasons are declared."""

from collections.abc import Iterator, Mapping

from groupcoord_spark.log.damage import CODES
from groupcoord_spark.protocol import errors
from groupcoord_spark.sources.rows import ROW_CODES
from groupcoord_spark.warehouse.tables import TABLES


def quarantine_reasons() -> Mapping[str, str]:
    """Reason -> sentence, for every reason in the order of the table's declaration."""
    of_decoders = {error.code: _condition(error) for error in _decode_errors(errors.DecodeError)}
    meanings = {**of_decoders, **{name: code.sentence for name, code in {**CODES, **ROW_CODES}.items()}}
    return {reason: meanings[reason] for reason in TABLES["quarantined_records"].by_name["reason"].words}


def _decode_errors(base: type[errors.DecodeError]) -> Iterator[type[errors.DecodeError]]:
    for error in base.__subclasses__():
        yield error
        yield from _decode_errors(error)


def _condition(error: type[errors.DecodeError]) -> str:
    sentence = " ".join((error.__doc__ or "").split()).removeprefix("Raised when ")
    return sentence[:1].upper() + sentence[1:]
