"""Tests of verify_chain.py over the project's vectors: `python3 -m unittest discover -s tools`."""

import copy
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import verify_chain  # noqa: E402 (it is no package)

VECTORS = HERE.parent / "testdata" / "vectors"
SCRIPT = HERE / "verify_chain.py"


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def cases(kind):
    for path in sorted((VECTORS / kind).glob("*.json")):
        for case in load(path)["cases"]:
            yield f"{path.stem}/{case['name']}", case


def journals():
    return {path.stem: load(path)["records"] for path in sorted((VECTORS / "journals").glob("*.json"))}


def lines(records, head=True):
    """An export of `records`, as bytes."""
    out = [json.dumps(record) for record in records]
    if head:
        last = records[-1] if records else {"seq": "0", "content_hash": ""}
        out.append(json.dumps({"head": {"seq": last["seq"], "hash": last["content_hash"], "session": {}}}))
    return "".join(line + "\n" for line in out).encode()


def verify(data):
    return verify_chain.verify(io.BytesIO(data))


def strict(text):
    return verify_chain.parse(text.encode("utf-8", "surrogatepass"))


class CanonicalForm(unittest.TestCase):
    def test_number_vectors(self):
        for name, case in cases("number"):
            with self.subTest(name):
                self.assertEqual(verify_chain.number(float(case["double"])), case["canonical"])
                self.assertEqual(verify_chain.canonical(strict(case["double"])), case["canonical"].encode())

    def test_numbers_at_the_edges(self):
        for text, expected in [
            ("-0", "0"), ("0.0", "0"), ("-1.50", "-1.5"), ("1e20", "100000000000000000000"),
            ("123456789012345680000", "123456789012345680000"), ("1e21", "1e+21"),
            ("-1e-7", "-1e-7"), ("1.5e-7", "1.5e-7"), ("0.00001234", "0.00001234"),
            ("9007199254740993", "9007199254740992"), ("18446744073709551615", "18446744073709552000"),
            ("333333333.33333329", "333333333.3333333"), ("2e-3", "0.002"), ("1e0", "1"),
        ]:
            with self.subTest(text):
                self.assertEqual(verify_chain.canonical(strict(text)), expected.encode())

    def test_record_vectors(self):
        for name, case in cases("canonical_record"):
            with self.subTest(name):
                data = verify_chain.record_bytes(case["event"], case["prev_hash"], case["seq"])
                found = {"canonical": data.decode(), "content_hash": hashlib.sha256(data).hexdigest()}
                expected = {member: case[member] for member in found if member in case}
                self.assertTrue(expected, "a case says what must hold")
                self.assertEqual({member: found[member] for member in expected}, expected)

    def test_event_and_message_vectors(self):
        for kind, member in [("canonical_event", "event"), ("canonical_message", "message")]:
            for name, case in cases(kind):
                with self.subTest(name):
                    data = verify_chain.canonical(case[member])
                    self.assertEqual(data.decode(), case["canonical"])
                    if "digest" in case:
                        self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(), case["digest"])

    def test_keys_sort_by_utf16_and_only_control_characters_are_escaped(self):
        text = '{"\\ue000": 1, "\\ud83d\\ude42": 2, "b": "\\u007f\\u2028/<>&\\u0001\\n\\"", "a": [true, false, null]}'
        expected = '{"a":[true,false,null],"b":"\x7f\u2028/<>&\\u0001\\n\\"","\U0001f642":2,"\ue000":1}'
        self.assertEqual(verify_chain.canonical(strict(text)).decode(), expected)

    def test_what_has_no_canonical_form_is_refused(self):
        for text in [
            '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', "NaN", "[Infinity]", "-Infinity", "1e999", "9" * 400,
            '"\\ud800"', '{"\\udc00":1}', "[" * 10_000 + "]" * 10_000, "[" * 200 + "]" * 200,
            '"\x01"', "01", "{} {}", "", "\ufeff{}", "9" * 10_000,
        ]:
            with self.subTest(text[:30]), self.assertRaises(verify_chain.Invalid):
                strict(text)
        with self.assertRaises(verify_chain.Invalid):
            verify_chain.parse(b'"\xff"')


class Journals(unittest.TestCase):
    def refused(self, data, seq):
        with self.assertRaises(verify_chain.NotVerified) as caught:
            verify(data)
        self.assertEqual(caught.exception.seq, seq, str(caught.exception))

    def test_every_journal_verifies_in_every_form(self):
        for name, records in journals().items():
            path = VECTORS / "journals" / f"{name}.json"
            compact = json.dumps(load(path)).encode()
            forms = [path.read_bytes(), compact, lines(records), lines(records, head=False), lines(records).strip()]
            for data in forms:
                with self.subTest(name, data=data[:30]):
                    chain = verify(data)
                    self.assertEqual(f"{chain.seq}:{chain.hash}", f"{len(records)}:{records[-1]['content_hash']}")

    def test_every_record_that_is_edited_is_named(self):
        def edit(change):
            for name, records in journals().items():
                for index in range(len(records)):
                    changed = copy.deepcopy(records)
                    change(changed[index])
                    with self.subTest(name, index=index):
                        self.refused(lines(changed), index + 1)

        edit(lambda record: record["event"].update(execution_id="ffffffffffffffff"))
        edit(lambda record: record["event"].update(kind="EVENT_ERROR"))
        edit(lambda record: record.update(content_hash="0" * 64))
        edit(lambda record: record.update(prev_hash="0" * 64))
        edit(lambda record: record.update(seq="99"))
        edit(lambda record: record.update(seq=int(record["seq"])))
        edit(lambda record: record.update(fence=1))
        edit(lambda record: record.update(event=[]))
        edit(lambda record: record.update(extra=1))
        edit(lambda record: record.update(notes={"a": 1}))
        edit(lambda record: record.pop("fence"))

    def test_notes_and_fence_are_not_hashed(self):
        records = journals()["multi-turn"]
        records[0].update(fence="7", notes={"commit_time": "2026-11-30T00:00:00Z"})
        self.assertEqual(verify(lines(records)).seq, len(records))

    def test_a_record_that_is_missing_moved_or_repeated_is_named(self):
        for name, records in journals().items():
            for index in range(len(records) - 1):
                with self.subTest(name, index=index):
                    self.refused(lines(records[:index] + records[index + 1:]), index + 1)
                    swapped = records[:]
                    swapped[index:index + 2] = reversed(swapped[index:index + 2])
                    self.refused(lines(swapped), index + 1)
                    self.refused(lines(records[:index + 1] + records[index:]), index + 2)

    def test_a_cut_tail_is_found_by_its_head_alone(self):
        for name, records in journals().items():
            whole = lines(records).splitlines(keepends=True)
            for kept in range(len(records)):
                with self.subTest(name, kept=kept):
                    self.refused(b"".join(whole[:kept] + whole[-1:]), kept + 1)
                    if kept:
                        chain = verify(b"".join(whole[:kept]))
                        self.assertIsNone(chain.head)
                        with self.assertRaises(verify_chain.NotVerified):
                            chain.ends_at((len(records), records[-1]["content_hash"]), "")

    def test_a_line_that_is_cut_or_is_no_record_is_named(self):
        records = journals()["completed"]
        whole = lines(records).splitlines(keepends=True)
        for index, line in enumerate(whole):
            for bad in [line[: len(line) // 2], b"[]\n", b"null\n", b'{"head":1}\n', b"\xff\n", line[:-2] + b',"seq":"1"}\n']:
                with self.subTest(index=index, bad=bad[:20]):
                    self.refused(b"".join(whole[:index] + [bad] + whole[index + 1:]), index + 1)
        self.refused(lines(records) + whole[0], len(records) + 1)
        self.refused(lines(records) + whole[-1], len(records) + 1)
        self.refused(b"", 1)
        self.refused(b'{"records":[]}', 1)

    def test_an_empty_journal_has_a_head(self):
        self.assertEqual(verify(lines([])).head, (0, ""))


class Command(unittest.TestCase):
    def run_script(self, *arguments, data=None):
        command = [sys.executable, str(SCRIPT), *arguments]
        done = subprocess.run(command, input=data, capture_output=True, timeout=60)
        return done.returncode, done.stdout.decode()

    def test_exit_codes_and_words(self):
        records = journals()["completed"]
        head = f"{records[-1]['seq']}:{records[-1]['content_hash']}"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "journal.ndjson"
            path.write_bytes(lines(records))
            self.assertEqual(self.run_script(str(path)), (0, f"OK head={head}\n"))
            self.assertEqual(self.run_script(str(path), "--expect-head", head)[0], 0)
            self.assertEqual(self.run_script(str(pathlib.Path(folder) / "missing"))[0], 2)

        code, said = self.run_script("-", data=lines(records, head=False))
        self.assertEqual(code, 0)
        self.assertIn("head not attested", said)
        code, said = self.run_script("-", "--expect-head", head, data=lines(records[:-1], head=False))
        self.assertEqual((code, said[:12]), (1, "FAILED seq=4"))
        records[1]["event"]["kind"] = "EVENT_OUTPUT"
        code, said = self.run_script("-", data=lines(records))
        self.assertEqual((code, said[:12]), (1, "FAILED seq=2"))
        for bad in ["4", "4:xyz", "-1:" + "0" * 64, "4:" + "A" * 64, "1:"]:
            self.assertEqual(self.run_script("-", f"--expect-head={bad}", data=b"")[0], 2, bad)
        self.assertEqual(self.run_script()[0], 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])  # what follows is not for unittest
