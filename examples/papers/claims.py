"""Every claim of the four papers in one table with its verdict, and the number of claims by verdict."""

from collections import Counter

import claims_glb_omd
import claims_hvt_ucb
import claims_oons
import claims_private_oco
from claim import VERDICTS, numbered
from experiment import table

# The letter of each paper's claims, and the module that has them.
PAPERS = {
    "Hvt-UCB": ("H", claims_hvt_ucb),
    "GLB-OMD": ("G", claims_glb_omd),
    "OONS": ("O", claims_oons),
    "DP-TOFW": ("P", claims_private_oco),
}


def tables() -> dict[str, str]:
    """Return the table of all claims and that of their number by verdict."""
    rows, counts = [], []
    for name, (letter, module) in PAPERS.items():
        found = list(numbered(letter, module.claims()))
        link = f"[{name}](../examples/papers/{module.__name__}.py)"
        rows += [(number, one.item, one.says, one.script, one.verdict) for number, one in found]
        by_verdict = Counter(claim.verdict for _, claim in found)
        counts.append([link, *(by_verdict[verdict] for verdict in VERDICTS), len(found)])
    counts.append(["all", *(sum(column) for column in zip(*(row[1:] for row in counts), strict=True))])
    return {
        "Claims by verdict": table(["Paper", *VERDICTS, "claims"], counts),
        "Claims of the four papers": table(["Number", "Claim", "What the paper says", "Script", "Verdict"], rows),
    }
