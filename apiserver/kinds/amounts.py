"""Maps from resource names to quantities: `{"cpu": "500m"}`."""

from kvstack.apimachinery.objects.quantity import MILLI, parse


def round_up_amounts(amounts: dict[str, str] | None) -> None:
    """Round every quantity up to thousandths, in place, as decoding does in every version."""
    if not amounts:
        return
    for name, text in amounts.items():
        # Only quantities with these suffixes can be finer than a thousandth.
        if text[-1] in "nu" or "e-" in text or "E-" in text:
            amounts[name] = str(parse(text).round_up(MILLI))
