#!/usr/bin/env python3
"""Verifies an exported journal with nothing but Python's standard library.

    verify_chain.py FILE [--expect-head SEQ:HASH]

FILE is an export (one record a line, last a line with the head), a vector file
with a list of records, or `-` for standard input. What is checked:

- every record's hash, over its canonical form, which is computed here: RFC 8785
  over {"event", "prev_hash", "seq"};
- that each record names the hash of the record before, and that none is missing
  in between;
- that the journal ends where its head line, or --expect-head, says. Without
  either, records missing at the end cannot be noticed, and this says so.

The chain has no key: whoever can rewrite the whole file and its head can forge
it. Keep a head somewhere else and pass it with --expect-head.

Exit code: 0 verified, 1 not verified (the first bad seq is named), 2 bad usage
or unreadable file. Needs Python 3.9 or newer.
"""

import argparse
import hashlib
import json
import math
import re
import sys

# A line of an export, and a whole vector file, are refused above these.
LINE_BYTES_MAX = 64 << 20
DOCUMENT_BYTES_MAX = 256 << 20

# No event of the format comes near; the parser's own limit depends on the build.
DEPTH_MAX = 128

HASH = re.compile(r"[0-9a-f]{64}\Z")
SEQ = re.compile(r"(0|[1-9][0-9]{0,19})\Z")

RECORD_MEMBERS = {"seq", "prev_hash", "content_hash", "fence", "event", "notes"}


class Invalid(Exception):
    """A text that is not the JSON that can be hashed."""


class NotVerified(Exception):
    """What is wrong, and with which record."""

    def __init__(self, seq, why):
        super().__init__(f"seq={seq}: {why}")
        self.seq = seq


# Strict JSON ---------------------------------------------------------------


def parse(data):
    """Parses bytes, refusing what a canonical form cannot hold."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=float,
            parse_float=float,
            parse_constant=_constant,
        )
    except Invalid:
        raise
    except UnicodeDecodeError:
        raise Invalid("not utf-8") from None
    except RecursionError:
        raise Invalid("nested too deep") from None
    except ValueError as error:
        # The parser's words quote nothing but a position.
        raise Invalid(f"not json: {error}") from None
    _check(value)
    return value


def _object(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Invalid("duplicate key")
    return members


def _constant(name):
    raise Invalid(f"{name} is not json")


def _check(value):
    """Refuses infinities, lone surrogates and deep nesting, without recursion."""
    todo = [(value, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > DEPTH_MAX:
            raise Invalid("nested too deep")
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise Invalid("number out of range")
        elif isinstance(value, list):
            todo.extend((item, depth + 1) for item in value)
        elif isinstance(value, dict):
            for key, item in value.items():
                _check_text(key)
                todo.append((item, depth + 1))


def _check_text(text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid("lone surrogate") from None


# Canonical form (RFC 8785) -------------------------------------------------


def canonical(value):
    """The canonical bytes of a parsed value."""
    out = []
    _write(value, out)
    return "".join(out).encode("utf-8")


def _write(value, out):
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        _write_text(value, out)
    elif isinstance(value, (int, float)):
        out.append(number(float(value)))
    elif isinstance(value, list):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out)
        out.append("]")
    else:
        out.append("{")
        # By UTF-16 code units: a surrogate pair sorts before U+E000.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        for index, key in enumerate(keys):
            if index:
                out.append(",")
            _write_text(key, out)
            out.append(":")
            _write(value[key], out)
        out.append("}")


ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
ESCAPED = re.compile(r'["\\\x00-\x1f]')


def _write_text(text, out):
    out.append('"')
    out.append(ESCAPED.sub(lambda m: ESCAPES.get(m[0]) or f"\\u{ord(m[0]):04x}", text))
    out.append('"')


def number(value):
    """A double as ECMAScript writes it."""
    if not math.isfinite(value):
        raise Invalid("number out of range")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    # repr gives the shortest digits that read back, as ECMAScript asks for.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    exponent = point - 1
    tail = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if exponent > 0 else '-'}{abs(exponent)}"


def record_bytes(event, prev_hash, seq):
    """What is hashed of a record."""
    return canonical({"event": event, "prev_hash": prev_hash, "seq": seq})


# The chain -----------------------------------------------------------------


class Chain:
    """Checks records one after the other, in bounded memory."""

    def __init__(self):
        self.seq = 0
        self.hash = ""
        self.head = None

    def take(self, line):
        """Checks the next parsed line: a record, or the head."""
        if self.head is not None:
            raise NotVerified(self.seq + 1, "something follows the head line")
        if not isinstance(line, dict):
            raise NotVerified(self.seq + 1, "not a record")
        if "head" in line:
            self._take_head(line)
        else:
            self._take_record(line)

    def _take_record(self, record):
        seq = self.seq + 1

        def need(holds, why):
            if not holds:
                raise NotVerified(seq, why)

        missing = RECORD_MEMBERS - {"notes"} - record.keys()
        need(not missing, f"record has no {', '.join(sorted(missing))}")
        need(record.keys() <= RECORD_MEMBERS, "record has a member that is not known")
        need(isinstance(record["event"], dict), "event is not an object")
        need(_matches(SEQ, record["fence"]), "fence is not a number")
        need(_is_notes(record.get("notes", {})), "notes are not texts by name")
        need(record["seq"] == str(seq), "seq is not the one that follows: a record is missing, added or moved")
        need(record["prev_hash"] == self.hash, "prev_hash is not the hash of the record before")
        content = hashlib.sha256(record_bytes(record["event"], self.hash, str(seq))).hexdigest()
        need(record["content_hash"] == content, "content_hash is not the hash of the content")
        self.seq, self.hash = seq, content

    def _take_head(self, line):
        head = line["head"]
        good = (
            line.keys() == {"head"}
            and isinstance(head, dict)
            and _matches(SEQ, head.get("seq"))
            and isinstance(head.get("hash"), str)
            and isinstance(head.get("session", {}), dict)
        )
        if not good:
            raise NotVerified(self.seq + 1, "head line is not a head")
        self.head = (int(head["seq"]), head["hash"])
        self.ends_at(self.head, "the head line says")

    def ends_at(self, head, who):
        """Checks that the journal ends at `head`."""
        seq, content_hash = head
        if self.seq < seq:
            raise NotVerified(self.seq + 1, f"missing: the journal ends at {self.seq}, {who} {seq}")
        if self.seq > seq:
            raise NotVerified(seq + 1, f"too much: the journal ends at {self.seq}, {who} {seq}")
        if self.hash != content_hash:
            raise NotVerified(seq, f"the hash at the end is not the one that {who}")


def _matches(pattern, value):
    return isinstance(value, str) and pattern.match(value) is not None


def _is_notes(notes):
    return isinstance(notes, dict) and all(isinstance(text, str) for text in notes.values())


def verify(stream):
    """Verifies a binary stream and returns its chain."""
    chain = Chain()
    first = stream.readline(LINE_BYTES_MAX + 1)
    records = _document(first, stream)
    if records is None:
        _verify_lines(chain, first, stream)
    else:
        for record in records:
            chain.take(record)
    if chain.seq == 0 and chain.head is None:
        raise NotVerified(1, "the file holds neither a record nor a head")
    return chain


def _verify_lines(chain, line, stream):
    while line:
        if len(line) > LINE_BYTES_MAX:
            raise NotVerified(chain.seq + 1, f"line is longer than {LINE_BYTES_MAX} bytes")
        if line.strip():
            try:
                parsed = parse(line)
            except Invalid as error:
                raise NotVerified(chain.seq + 1, str(error)) from None
            chain.take(parsed)
        line = stream.readline(LINE_BYTES_MAX + 1)


def _document(first, stream):
    """The records of a vector file; None if the file is one of lines.

    The first line of an export is a whole object; that of a document is a whole
    document, or, when it is indented, no JSON at all.
    """
    try:
        return _records(parse(first))
    except Invalid as error:
        refused = NotVerified(1, str(error))
    rest = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(first) + len(rest) > DOCUMENT_BYTES_MAX:
        raise refused
    try:
        records = _records(parse(first + rest))
    except Invalid:
        raise refused from None
    if records is None:
        raise refused
    return records


def _records(document):
    records = document.get("records") if isinstance(document, dict) else None
    return records if isinstance(records, list) else None


# The command ---------------------------------------------------------------


def head_argument(text):
    seq, colon, content_hash = text.partition(":")
    good = SEQ.match(seq) and colon and (HASH.match(content_hash) or (seq == "0" and not content_hash))
    if not good:
        raise argparse.ArgumentTypeError("not SEQ:HASH, with a hash of 64 lowercase hex digits")
    return int(seq), content_hash


def main(argv=None):
    parser = argparse.ArgumentParser(description="Verifies an exported journal.")
    parser.add_argument("file", help="an export or a vector file, - for standard input")
    parser.add_argument("--expect-head", type=head_argument, metavar="SEQ:HASH", help="where it must end")
    options = parser.parse_args(argv)
    try:
        if options.file == "-":
            chain = verify(sys.stdin.buffer)
        else:
            with open(options.file, "rb") as stream:
                chain = verify(stream)
        if options.expect_head is not None:
            chain.ends_at(options.expect_head, "--expect-head says")
    except NotVerified as error:
        print(f"FAILED {error}")
        return 1
    except OSError as error:
        print(f"verify_chain.py: {error}", file=sys.stderr)
        return 2
    print(f"OK head={chain.seq}:{chain.hash}")
    if chain.head is None and options.expect_head is None:
        print("head not attested: records missing at the end would go unnoticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
