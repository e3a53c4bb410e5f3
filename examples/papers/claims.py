"""Every claim of the four papers in one table with its verdict, and the number of claims by verdict: tables of docs/papers.md."""

from collections import Counter

import claims_glb_omd
import claims_hvt_ucb
import claims_oons
import claims_private_oco
from claim import VERDICTS, numbered
from experiment import table

# Page of each paper, the letter of its claims, and the claims.
PAPERS = {
    "Hvt-UCB": ("hvt_ucb.md", "H", claims_hvt_ucb.claims),
    "GLB-OMD": ("glb_omd.md", "G", claims_glb_omd.claims),
    "OONS": ("oons.md", "O", claims_oons.claims),
    "DP-TOFW": ("private_oco.md", "P", claims_private_oco.claims),
}


def tables() -> dict[str, str]:
    """Return the table of all claims and that of their number by verdict."""
    rows, counts = [], []
    for name, (page, letter, claims) in PAPERS.items():
        found = list(numbered(letter, claims()))
        link = f"[{name}]({page}#every-claim)"
        rows += [(number, one.item, one.says, one.script, one.verdict) for number, one in found]
        by_verdict = Counter(claim.verdict for _, claim in found)
        counts.append([link, *(by_verdict[verdict] for verdict in VERDICTS), len(found)])
    counts.append(["all", *(sum(column) for column in zip(*(row[1:] for row in counts), strict=True))])
    return {
        "Claims by verdict": table(["Paper", *VERDICTS, "claims"], counts),
        "Claims of the four papers": table(["Number", "Claim", "What the paper says", "Script", "Verdict"], rows),
    }
