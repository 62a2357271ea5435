"""Maps from names of resources to amounts, as objects hold them: `{"cpu": "500m"}`."""

from kvstack.apimachinery.objects.quantity import MILLI, parse


def round_up_amounts(amounts: dict[str, str] | None) -> None:
    """Round every amount up to thousandths, in place, as every version does on decoding."""
    if not amounts:
        return
    for name, text in amounts.items():
        # Only amounts with these suffixes can be finer than a thousandth.
        if text[-1] in "nu" or "e-" in text or "E-" in text:
            amounts[name] = str(parse(text).round_up(MILLI))
