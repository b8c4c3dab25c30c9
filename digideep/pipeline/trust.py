"""Which sessions' own code may run.

Level *data*: a session is read, its parameters name parts of the installed digideep and of a fixed table of environment
packages. Level *code*: the copies in its `modules/` and the user's modules that it names may run too. It takes one of

- a signature by this user: an HMAC over the session's id, the hashes of `modules/`, `saam.py` and `__init__.py` and the
  list of modules that it may import, with a key that lies outside the session;
- a place below one of $DIGIDEEP_TRUSTED_ROOTS that nobody else can write;
- `--trust-session`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from digideep.errors import StorageError, TrustError, UsageError, one_line
from digideep.pipeline.codetree import code_hash, exact_hashes, sha256_of
from digideep.pipeline.fsio import publish_json, read_json
from digideep.pipeline.keys import Key, find_key, make_key
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.needed import consented, needed_modules
from digideep.pipeline.snapshot import read_contents
from digideep.utility.imports import ENVIRONMENT_PACKAGES, is_allowed, top_level

__all__ = [
    "ENVIRONMENT_PACKAGES",
    "Trust",
    "assess",
    "check_requeue",
    "consented",
    "importable_packages",
    "needed_modules",
    "require",
    "sign",
    "sign_or_say_why",
    "untrusted",
    "verify_signature",
]

_FORMAT = "digideep-signature"
_VERSION = 1


class Trust(NamedTuple):
    """What a session may do, and why; `allowed` are the packages whose modules its parameters may name."""

    level: Literal["code", "data"]
    reason: str
    allowed: tuple[str, ...]

    @property
    def code(self) -> bool:
        """Whether the session's own code may run."""
        return self.level == "code"


def importable_packages(paths: SessionPaths, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that a session may import once all of it is trusted: those it names and those it carries.

    The class that a user's configuration builds may lie in another package than the configuration; which one, only
    the code says.
    """
    names = [top_level(name) for name in needed_modules(params)]
    try:
        contents = read_contents(paths.modules)
    except UsageError:
        contents = None  # what is damaged there is told by those who compare it
    if contents is not None:
        names += [name for name in (*contents.copied, *contents.listed) if not is_allowed(name, consented(()))]
    return tuple(sorted(set(names)))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def require(trust: Trust, params: Mapping[str, Any], *, session: Path, consent: Iterable[str] = ()) -> None:
    """Check that a session may import every module that its parameters name.

    At level data `/runner/on_epoch` is refused whatever it names: to call a function of one's choice is to run code.

    Args:
        trust: what `assess` found.
        params: the tree, changes of this start included.
        session: directory, for the message.
        consent: modules that the user named on this command line.

    Raises:
        TrustError: one of them is not trusted; names it and the two ways out.
    """
    allowed = (*trust.allowed, *consent)
    missing = [name for name in needed_modules(params) if not is_allowed(name, allowed)]
    hook = _mapping(params.get("runner")).get("on_epoch")
    if isinstance(hook, str) and not trust.code and not missing:
        missing = [name for name in (hook.partition(":")[0],) if not is_allowed(name, consent)]
    if missing:
        raise TrustError(untrusted(session, trust, f"module {', '.join(map(repr, missing))}"))


def untrusted(session: Path, trust: Trust, what: str) -> str:
    """Return the message of a TrustError: `what` of a session is needed and not trusted; why, and the two ways out."""
    where = one_line(session)
    found = f"{trust.reason}, but not with that" if trust.code else trust.reason
    return one_line(
        f"{where}: expected a trusted session, since it needs its {what}, found that {found}; if you trust it, "
        f"give --trust-session once, or run 'python -m digideep.sessions trust {where}'"
    )


def sign(paths: SessionPaths, *, modules: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Sign a session with this user's key, which is made where there is none.

    Args:
        paths: of the session, `modules/` and the template already in it.
        modules: what it may import beyond level data.
        environ: the environment variables; None: those of this process.

    Returns:
        An empty string, or why there is no signature: no key can be kept on this machine.

    Raises:
        StorageError: the signature could not be written.
        UsageError: `modules/` holds what digideep never puts there.
    """
    key = make_key(os.environ if environ is None else environ)
    if key.secret is None:
        return key.reason
    claim = _claim(paths, modules=modules)
    publish_json(paths.signature, {**claim, "hmac": _hmac(key.secret, claim)})
    return ""


def _claim(paths: SessionPaths, *, modules: Sequence[str]) -> dict[str, Any]:
    has_modules = os.path.lexists(paths.modules)
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "id": read_meta(paths)["id"],
        "modules": code_hash(exact_hashes(paths.modules)) if has_modules else "",
        "saam.py": sha256_of(paths.saam),
        "__init__.py": sha256_of(paths.init),
        "imports": sorted(set(modules)),
    }


def _hmac(secret: bytes, claim: Mapping[str, Any]) -> str:
    content = json.dumps(claim, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def verify_signature(paths: SessionPaths, key: Key) -> tuple[tuple[str, ...] | None, str]:
    """Return (modules that the signature allows, reason); None where there is no signature that holds."""
    if not os.path.lexists(paths.signature):
        return None, "it is not signed"
    try:
        found = read_json(paths.signature, limit_bytes=1 << 20)
    except UsageError as error:
        return None, f"its signature cannot be read ({error})"
    if not isinstance(found, dict) or not isinstance(found.get("hmac"), str):
        return None, "its signature is malformed"
    if key.secret is None:
        return None, f"its signature cannot be checked ({key.reason})"
    claim = {name: value for name, value in found.items() if name != "hmac"}
    if not hmac.compare_digest(_hmac(key.secret, claim).encode(), found["hmac"].encode("utf-8", "replace")):
        return None, "it was signed by another user or on another machine"
    # From here on every word of the claim is our own.
    try:
        today = _claim(paths, modules=claim["imports"])
    except UsageError as error:
        return None, f"its code cannot be checked ({error})"
    changed = [name for name in claim if claim[name] != today.get(name)]  # no secret: plain comparison will do
    if changed:
        return None, f"it has changed since it was signed ({', '.join(changed)})"
    return tuple(claim["imports"]), "it is signed by this user"


def assess(
    paths: SessionPaths,
    *,
    trust_session: bool = False,
    params: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Trust:
    """Return how far a session is trusted. Reads only, and runs nothing of it.

    Args:
        paths: of the session.
        trust_session: the user gave --trust-session.
        params: its tree; what it names and carries is allowed where the whole session is trusted.
        environ: the environment variables; None: those of this process.
    """
    environ = os.environ if environ is None else environ
    named = () if params is None else importable_packages(paths, params)
    if trust_session:
        return Trust("code", "--trust-session was given", consented(named))
    imports, reason = verify_signature(paths, find_key(environ))
    if imports is not None:
        return Trust("code", reason, consented(imports))
    root, why_not = _trusted_root(paths, environ)
    if root is not None:
        return Trust("code", f"it lies below {one_line(root)} of DIGIDEEP_TRUSTED_ROOTS", consented(named))
    return Trust("data", reason + (f", and {why_not}" if why_not else ""), consented(()))


def _trusted_root(paths: SessionPaths, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return (the trusted root that a session lies below, or None; what speaks against the one it does lie below)."""
    root, why_not = _trusted_place(paths.root, environ)
    if root is not None:
        try:
            for path in (paths.modules, paths.saam, paths.init):
                if os.path.lexists(path):
                    exact_hashes(path, owner=os.geteuid())
        except UsageError as error:
            return None, str(error)
    return root, why_not


def _trusted_place(directory: Path, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    real = Path(os.path.realpath(directory))
    for text in filter(None, environ.get("DIGIDEEP_TRUSTED_ROOTS", "").split(os.pathsep)):
        root = Path(os.path.realpath(text))
        if not os.path.isabs(text) or root == Path("/") or not real.is_relative_to(root):
            continue
        for place in (real, *(parent for parent in real.parents if parent.is_relative_to(root))):
            try:
                status = place.stat()
            except OSError as error:
                return None, f"{one_line(place)} cannot be looked at: {error.strerror}"
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None, f"{one_line(place)} is another user's or can be written by others"
        return root, ""
    return None, ""


def sign_or_say_why(paths: SessionPaths, *, modules: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Sign a session at its beginning; return an empty string, or the line to warn with where that cannot be."""
    try:
        reason = sign(paths, modules=modules, environ=environ)
    except StorageError as error:
        reason = str(error)
    if not reason:
        return ""
    return (
        f"the session is not signed: {reason}; to resume it with its own code, give --trust-session or keep it below "
        f"a directory of DIGIDEEP_TRUSTED_ROOTS"
    )


def check_requeue(
    root: Path, *, modules: Sequence[str], trust_session: bool, environ: Mapping[str, str] | None = None
) -> None:
    """Check, before a session is made for --autoresume, that a requeued job will be able to run its code.

    Args:
        root: where the session will lie.
        modules: what it imports beyond level data.
        trust_session: whether --trust-session was given, as it will be again.
        environ: the environment variables; None: those of this process.

    Raises:
        TrustError: it needs code that nobody could vouch for then.
    """
    environ = os.environ if environ is None else environ
    if not modules or trust_session or (key := make_key(environ)).secret is not None:
        return
    if _trusted_place(root, environ)[0] is None:
        names = ", ".join(map(repr, modules))
        raise TrustError(
            f"--autoresume: expected that the session can be signed, since it needs module {names}, found that "
            f"{key.reason}; give --trust-session, or set DIGIDEEP_TRUSTED_ROOTS"
        )
