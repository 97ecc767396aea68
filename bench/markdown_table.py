# SPDX-License-Identifier: Apache-2.0
# markdown_table.py - tables in Markdown, as the comparisons of this folder print them.
"""For collective.py and study/real/report.py."""


def markdown(head, rows):
    """Returns a table as text. head has the titles of the columns, rows the text of all cells."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
