"""Mask what a report must not tell strangers: users, homes, hosts, addresses, tokens and keys."""

from __future__ import annotations

import re

SECRET = re.compile(
    r"""
    -----BEGIN\ [A-Z ]+-----.*?(?:-----END\ [A-Z ]+-----|$)              # keys and certificates
    | \bssh-(?:rsa|ed25519|dss)\ \S+ | \becdsa-sha2-\S+\ \S+
    | \b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|pk-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-)[\w./+=-]{8,}
    | \beyJ[\w-]+\.[\w-]+(?:\.[\w-]+)?                                   # a JSON web token
    | (?<![\w/.])(?=[\w+/=-]*[0-9])(?=[\w+/=-]*[A-Za-z])[\w+=-]{32,}(?![\w/.])       # any long mixture, such as a hash
    """,
    re.VERBOSE | re.DOTALL,
)
NAMED_SECRET = re.compile(
    r"""(?i)(?P<name>[\w-]*(?:token|passw(?:or)?d|passphrase|secret|credential|(?:api|access|private)[_-]?key)s?
    ["']?\s*[=:]\s*["']?|\bauthorization["']?\s*[=:]\s*["']?(?:bearer|basic|token)?\s*|\bbearer\s+)[^\s"',;]+""",
    re.VERBOSE,
)
IN_URL = re.compile(r"(?<=://)[^/\s@:]*(?::[^/\s@]*)?@")
URL_HOST = re.compile(r"(?<=://)(?!<)[^/\s:@\[\]]+")
EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
MAC = re.compile(r"(?<![\da-fA-F:-])(?:[\da-fA-F]{2}[:-]){5}[\da-fA-F]{2}(?![\da-fA-F:-])")
IPV6 = re.compile(
    r"(?<![\w:.])(?:[\da-fA-F]{1,4}:){3,7}[\da-fA-F]{1,4}(?![\w:])|(?<![\w:])(?:[\da-fA-F]{0,4}:){1,7}:[\da-fA-F:.]*"
)
DOMAIN = re.compile(
    r"(?<![\w./-])(?:[A-Za-z0-9_-]+\.)+(?:com|org|net|edu|gov|mil|int|eu|[a-z]{2}|cloud|local|lan|internal|cluster|"
    r"localdomain|hpc|dev|io|ai)(?![\w/]|\.\w)"
)
FILE_ENDINGS = ("py", "sh", "so", "md", "cc", "cu", "js", "rs", "go", "pt", "gz")
"""What looks like a country after a name, and ends a file's."""

PATH = re.compile(r"(?<![\w/.:<>-])(?:~\w*|file://)?/(?:[^\s/:;,'\"()\[\]<>]+/)*[^\s/:;,'\"()\[\]<>]*|~\w*/\S*")
NAMED_FILE = re.compile(r".\.\w+$")
HOME = re.compile(
    r"/(?:home|users|Users|u|home\d*|nfs/home|mnt/home|scratch|work|project|projects)/+([A-Za-z_][\w.-]*)"
)
USER = re.compile(
    r"(?i)\b(?:user(?:name)?|logname|owner|login)\b[\"']?\s*[=:]\s*[\"']?([A-Za-z_][\w.-]*)|\buid=\d+\(([^)]+)\)|"
    r"CANCELLED by ([A-Za-z_][\w-]*)"
)
HOST = re.compile(
    r"(?i)\bhost(?:name)?s?\b[\"']?\s*[=:]\s*[\"']?([\w.-]+)|srun: error: ([\w.-]+): |\bON ([\w.-]+) CANCELLED|"
    r"slurmstepd-([\w.-]+):|\b(?:Batch|Node|Req|Exc)(?:Host|List|NodeList)=([\w.-]+)|UnavailableNodes:([\w.-]+)|"
    r"connect to (?:host )?\(?\[?([A-Za-z][\w.-]*)|\b(?:node|on|from|to|at) ([a-z][a-z-]*\d+)\b|"
    r"^(?:\d+: )?([a-z][a-z-]*\d+)(?:: |$)"
)
COMMON = {"localhost", "root", "none", "the", "node", "rank", "host", "user", "port", "python", "srun", "slurm"}
"""Words that name nobody."""


class Redactor:
    """Masks names in texts; each name gets the same mask in all texts."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def learn(self, text: str) -> None:
        """Remember the users and hosts in a text, to mask them wherever else they appear."""
        for kind, pattern in (("user", HOME), ("user", USER), ("host", HOST)):
            for groups in pattern.findall(text):
                for candidate in [groups] if isinstance(groups, str) else groups:
                    name = candidate.strip(".-")
                    if len(name) < 2 or name.lower() in COMMON or name.isdigit() or name in self.names:
                        continue
                    number = 1 + sum(mask.startswith(f"<{kind}") for mask in self.names.values())
                    self.names[name] = f"<{kind}{number}>"

    def mask(self, text: str) -> str:
        """Return a text without secrets.

        >>> redactor = Redactor()
        >>> redactor.learn("user=alice")
        >>> redactor.mask("/home/alice/run/train.py: node7 (10.0.0.7) refuses hf_abcdefgh123 of alice")
        '<path>/train.py: node7 (<address>) refuses <secret> of <user1>'
        """
        text = NAMED_SECRET.sub(lambda match: f"{match['name']}<secret>", text)
        text = SECRET.sub("<secret>", text)
        text = IN_URL.sub("<secret>@", text)
        text = URL_HOST.sub("<host>", text)
        text = EMAIL.sub("<address>", text)
        text = PATH.sub(_path, text)
        for pattern in (MAC, IPV6, IPV4):
            text = pattern.sub("<address>", text)
        text = DOMAIN.sub(lambda match: match[0] if match[0].endswith(FILE_ENDINGS) else "<host>", text)
        if not self.names:
            return text
        names = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        return re.sub(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", lambda match: self.names[match[0]], text)


def _path(match: re.Match[str]) -> str:
    """Keep the part of a path that belongs to a package, or else the name of a file; a folder may be somebody's."""
    before, package, rest = match[0].partition("/site-packages/")
    name = before.rpartition("/")[2]
    return f"<path>{package}{rest}" if package else f"<path>/{name}" if NAMED_FILE.search(name) else "<path>"
