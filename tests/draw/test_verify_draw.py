"""Runs all published vectors, own altered files, and flips of bytes: `python3 tests/draw/test_verify_draw.py`, about 20 s.

Invariant: each altered file has one fault, and the reason of the refusal is compared.
"""
import base64
import contextlib
import copy
import hashlib
import io
import json
import os
import struct
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import verify_draw as v  # noqa: E402 (after the path)

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/draw/tests/vectors")
DRAWS = "empty one five all-left nobody-left thousand lottery drand later arrival stated-arrival".split()


def load(name):
    with open(os.path.join(VECTORS, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def b64(data):
    return base64.b64encode(data).decode()


# What an operator does, to make receipts and altered files: sign, and find paths.

def ed_encode(point):
    x, y, z, _ = point
    inverse = pow(z, -1, v.ED_P)
    return (y * inverse % v.ED_P | (x * inverse % v.ED_P & 1) << 255).to_bytes(32, "little")


def ed_sign(secret, message):
    h = hashlib.sha512(secret).digest()
    a = int.from_bytes(h[:32], "little") & (1 << 254) - 8 | 1 << 254
    public = ed_encode(v.ed_times(a, v.ED_BASE))
    r = int.from_bytes(hashlib.sha512(h[32:] + message).digest(), "little") % v.ED_L
    nonce = ed_encode(v.ed_times(r, v.ED_BASE))
    k = int.from_bytes(hashlib.sha512(nonce + public + message).digest(), "little")
    return public, nonce + ((r + k * a) % v.ED_L).to_bytes(32, "little")


def make_key(name, secret):
    data = b"\x01" + ed_sign(secret, b"")[0]
    return f"{name}+{v.sha256(name.encode() + bytes([10]) + data)[:4].hex()}+{b64(data)}"


def make_note(text, key, secret):
    name, key_id, _ = key.split("+", 2)
    return f"{text}\n— {name} {b64(bytes.fromhex(key_id) + ed_sign(secret, text.encode())[1])}\n"


def text_of(note):
    return note.rpartition("\n\n")[0] + "\n"


def leaves(draw):
    return [v.sha256(struct.pack(">BIB", 0, i, draw.places[i >> 3] >> (i & 7) & 1)) for i in range(draw.checkpoint.size)]


def path_of(place, hashes):  # RFC 6962, section 2.1.1, as it is written there
    if len(hashes) <= 1:
        return []
    half = 1 << (len(hashes) - 1).bit_length() - 1
    if place < half:
        return path_of(place, hashes[:half]) + [v.tree_root(hashes[half:])]
    return path_of(place - half, hashes[half:]) + [v.tree_root(hashes[:half])]


def altered(record, secret, line=None, by=None, said=None):
    """The record with another line (from 0) in its checkpoint, and all signed again, so that nothing else is wrong."""
    record = copy.deepcopy(record)
    lines = text_of(record["checkpoint"]).split("\n")
    if line is not None:
        lines[line:line + 1] = [by] if by is not None else []
    text = "\n".join(lines)
    record["checkpoint"] = make_note(text, record["key"], secret)
    if "statement" in record["randomness"]:
        old = text_of(record["randomness"]["statement"]).split("\n")
        new = f"{lines[0]}\ncheckpoint {b64(v.sha256(text.encode()))}\n{said or old[2]}\n"
        record["randomness"]["statement"] = make_note(new, record["key"], secret)
    return record


class Primitives(unittest.TestCase):
    def test_chacha20(self):
        block = ("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                 "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586")  # RFC 8439, A.1, test vector 1
        many = v.chacha20_words(bytes(32), 0, 40)
        self.assertEqual(struct.pack("<16I", *many[:16]).hex(), block)
        self.assertEqual(many[16 * 39:], v.chacha20_words(bytes(32), 39, 1))

    def test_hash_to_g1(self):  # RFC 9380, J.9.1, the empty message
        x, y = v.hash_to_g1(b"", b"QUUX-V01-CS02-with-BLS12381G1_XMD:SHA-256_SSWU_RO_")
        self.assertEqual(f"{x:096x}", "052926add2207b76ca4fa57a8734416c8dc95e24501772c814278700eed6d1e4"
                                      "e8cf62d9c09db0fac349612b759e79a1")
        self.assertEqual(f"{y:096x}", "08ba738453bfed09cb546dbb0783dbb3a5f1f566ed67bb6be0e8c67e2e81a4cc"
                                      "68ee29813bb7994998f3eae0c9c6a265")

    def test_ed25519(self):  # RFC 8032, 7.1, TEST 2; and what a strict check refuses
        secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
        public, signature = ed_sign(secret, b"\x72")
        self.assertEqual(public.hex(), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
        self.assertEqual(signature.hex(), "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                                          "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
        v.ed_verify(public, b"\x72", signature, "here")
        s = int.from_bytes(signature[32:], "little") + v.ED_L
        one = (1).to_bytes(32, "little")
        for key, bad in ((public, signature[:63]), (public, signature + b"\0"), (public, signature[:32] + bytes(32)),
                         ((v.ED_P + 3).to_bytes(32, "little"), signature), ((2).to_bytes(32, "little"), signature),
                         (public, signature[:32] + s.to_bytes(32, "little")), (one, one + bytes(32)),
                         (public, one + signature[32:])):
            with self.assertRaises(v.Refused):
                v.ed_verify(key, b"\x72", bad, "here")

    def test_round(self):
        signature = ("b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125"
                     "e342b73a8dd2bacbe47e4b6b63ed5e39")
        self.assertEqual(v.verify_round(1000, signature).hex(),
                         "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd")
        infinity = "c0" + "00" * 47
        # With the other sign bit it is a point of the right group, and only the pairing tells that it is wrong.
        for number, bad in ((1000, signature.upper()), (1000, signature[:-1] + "a"), (1000, signature[:-2]),
                            (1001, signature), (1000, "94" + signature[2:]), (1000, infinity), (1000, "34" + signature[2:])):
            with self.assertRaises(v.Refused):
                v.verify_round(number, bad)

    def test_by_hand(self):
        draw = v.verify_record(dump(load("five")["record"]))
        self.assertEqual([leaf.hex() for leaf in leaves(draw)], [
            "186128bf8a4d60eb4b51102ae2a2cb6a0b80011977582480395a454454bec7e1",
            "7c70b6b1c612fa54ce7b84d65b84c9bf97b6846e1973ac7514eda1323f7bf2cb",
            "55af2e3db27cf364b9465ea89a489710da6c78ecc59ddf3ac6203261a6649d9e",
            "9728d09bd0ee3e871a226cab2d51870de0d393bf52fe55e47d0b66d43fba7eb8",
            "a6e25846f59af5ba2fad31b48816ea4a28367214411e8a6398ca09d472f63e11"])
        self.assertEqual(len(draw.checkpoint.text.encode()), 272)
        self.assertEqual(v.chacha20_words(draw.seed, 0, 1)[:3], [3584573999, 993865678, 4160115053])


class Vectors(unittest.TestCase):
    def test_draws(self):
        for name in DRAWS:
            with self.subTest(name):
                case = load(name)
                record, secret = case["record"], bytes.fromhex(case["secret"])
                draw = v.verify_record(dump(record), trusted=record["key"])
                self.assertEqual(draw.seed and draw.seed.hex(), case["seed"])
                positions = [v.position(draw, i) for i in range(draw.checkpoint.size)]
                self.assertEqual(positions, case["positions"])
                self.assertEqual(altered(record, secret), record)  # the same when it is signed again
                hashes = leaves(draw)
                for receipt in case["receipts"]:
                    v.verify_receipt(dump(receipt), draw)
                    v.verify_receipt(dump(receipt))  # alone
                    place = receipt["place"]
                    self.assertEqual(receipt, {
                        "format": "weir-draw-receipt-1", "event": draw.checkpoint.event, "zone": draw.checkpoint.zone,
                        "place": place, "inLine": positions[place] is not None, "position": positions[place],
                        "path": [b64(h) for h in path_of(place, hashes)],
                        "key": record["key"], "checkpoint": record["checkpoint"], "randomness": record["randomness"]})

    def test_wrong(self):
        for case in load("wrong"):
            with self.subTest(case["about"]):
                record, receipt = (case[name] and dump(case[name]) for name in ("record", "receipt"))
                if receipt is None:
                    with self.assertRaises(v.Refused):
                        v.verify_record(record)
                else:
                    draw = record and v.verify_record(record)
                    with self.assertRaises(v.Refused):
                        v.verify_receipt(receipt, draw)

    def test_right(self):
        for case in load("right"):
            with self.subTest(case["about"]):
                draw = v.verify_record(dump(case["record"]))
                if case["receipt"]:
                    v.verify_receipt(dump(case["receipt"]), draw)

    def test_texts(self):
        for case in load("texts"):
            with self.subTest(case["about"]):
                try:
                    draw = v.verify_record(case["record"].encode())
                    if case["receipt"]:
                        v.verify_receipt(case["receipt"].encode(), draw)
                    right = True
                except (v.Refused, v.Unreadable):
                    right = False
                self.assertEqual(right, case["right"])

    def test_shuffles(self):
        for case in load("shuffle"):
            with self.subTest(case["people"]):
                p = v.shuffle(bytes.fromhex(case["seed"]), case["people"])
                first = case["first"]
                self.assertEqual(list(p[:len(first)]), first)
                self.assertEqual(v.sha256(struct.pack(f"<{len(p)}I", *p)).hex(), case["sha256"])
                # The stream read without a limit is that many words shorter.
                words, drawn, dropped = v.stream(bytes.fromhex(case["seed"])), case["people"], 0
                while drawn > 1:
                    if next(words) < 2**32 - 2**32 % drawn:
                        drawn -= 1
                    else:
                        dropped += 1
                self.assertEqual(dropped, case["dropped"])


class Altered(unittest.TestCase):
    """Single faults, with everything else signed again."""

    def setUp(self):
        case = load("five")
        self.record, self.receipts = case["record"], case["receipts"]
        self.secret = bytes.fromhex(case["secret"])
        self.drand, self.later = load("drand")["record"], load("later")["record"]

    def refused(self, data, why, draw=None, receipt=False):
        data = data if type(data) is bytes else dump(data)
        with self.assertRaisesRegex((v.Refused, v.Unreadable), why):
            v.verify_receipt(data, draw) if receipt else v.verify_record(data)

    def test_lines(self):
        drand = f"randomness drand {v.QUICKNET} "
        late = "randomness stated " + "x" * 1024
        for line, by, why in (
                (0, "shop.example/weir/opening-night/sale", "line 1"), (0, "shop.example/opening-night/SALE", "line 1"),
                (1, "05", "line 2"), (1, "6", "root"), (1, "+5", "line 2"), (1, "٥", "line 2"), (1, "20000001", "line 2"),
                (2, "yz+SBdrE9wGlP+wcU8PiJ/lrPNe/j4ngw4Focbnm3T5=", "line 3"), (2, "yz8=", "line 3"),
                (3, None, "11 lines"), (3, "event opening night", "line 4"), (3, "event .", "line 4"),
                (4, "zone a/b", "line 5"), (4, "zone " + "x" * 65, "line 5"), (4, "zone", "line 5"),
                (5, "frozen 2023-08-23t15:59:20Z", "line 6"), (5, "frozen 1969-12-31T23:59:59Z", "line 6"),
                (6, "start 2023-02-29T00:00:00Z", "line 7"), (6, "start 2016-12-31T23:59:60Z", "line 7"),
                (6, "start 2023-08-23T15:59:21+00:00", "line 7"), (6, "start 9999-12-30T22:00:01Z", "line 7"),
                (6, "start 2023-08-23T24:00:00Z", "line 7"), (7, "algorithm weir-draw-2", "line 8"),
                (8, "in-line 3", "4 in line"), (8, "in-line 6", "line 9"), (8, "in-line  4", "line 9"),
                (9, late + "x", "line 10"), (9, "randomness stated ", "line 10"), (9, "randomness stated  x", "line 10"),
                (9, "randomness stated a\u0085b", "line 10"), (9, drand + "1", "line 10"),
                (10, "fallback later 60", "line 11"), (10, "fallback Wait", "line 11"), (10, "fallback wait\nx", "11 lines")):
            with self.subTest(by):
                self.refused(altered(self.record, self.secret, line, by), why)
        for line, by in ((6, "start 1970-01-01T00:00:00Z"), (6, "start 9999-12-30T22:00:00Z"), (9, late),
                         (9, "randomness stated a\u00a0b\u2028"), (10, "fallback arrival")):
            with self.subTest(by):
                v.verify_record(dump(altered(self.record, self.secret, line, by)))

    def test_rounds(self):
        for line, by, why in ((9, f"randomness drand {v.QUICKNET} 0", "line 10"),
                              (9, f"randomness drand {v.QUICKNET} 80000000001", "line 10"),
                              (9, f"randomness drand {v.QUICKNET}  1000", "line 10"),
                              (9, f"randomness drand {v.QUICKNET.upper()} 1000", "line 10"),
                              (5, "frozen 2023-08-23T16:59:24Z", "line 10"), (10, "fallback later 604801", "line 11"),
                              (9, f"randomness drand {v.QUICKNET} 1001", "1001 decides")):
            with self.subTest(by):
                self.refused(altered(self.drand, self.secret, line, by), why)
        # Round 1000 comes at 1692806364, which is 15:59:24: not after a freeze in the same second.
        self.refused(altered(self.drand, self.secret, 5, "frozen 2023-08-23T15:59:24Z"), "line 10")
        v.verify_record(dump(altered(self.drand, self.secret, 5, "frozen 2023-08-23T15:59:23Z")))
        for seconds, right in ((54, False), (55, True), (57, True), (58, False)):  # 19 rounds after 981
            record = altered(self.later, self.secret, 10, f"fallback later {seconds}")
            with self.subTest(seconds):
                if right:
                    v.verify_record(dump(record))
                else:
                    self.refused(record, "decides")
        self.refused(altered(self.later, self.secret, said="value 1"), "the statement does not say")
        # A later round may be above the last one that can be announced; only its signature is missing here.
        last = altered(altered(self.later, self.secret, 9, f"randomness drand {v.QUICKNET} 80000000000"), self.secret, 10,
                       "fallback later 604800")
        last["randomness"]["round"] = 80_000_201_600
        self.refused(last, "not that of round 80000201600")

    def test_statements(self):
        for said in ("value", "value ", "Value 1", "missing ", "missing", "value a ", "value a\x7fb", "value " + "x" * 1025):
            with self.subTest(said):
                self.refused(altered(self.record, self.secret, said=said), "statement")

        # A statement with the right hash and another origin; one with the right origin and another hash.
        for old, new in (("/SALE\n", "/SALF\n"), ("checkpoint irt", "checkpoint Irt")):
            text = text_of(self.record["randomness"]["statement"]).replace(old, new)
            kind = {"kind": "stated", "statement": make_note(text, self.record["key"], self.secret)}
            self.refused(self.record | {"randomness": kind}, "the statement: ")

    def test_randomness(self):
        missing = altered(self.record, self.secret, said="missing")["randomness"]["statement"]
        late = self.later["randomness"]
        for record, value, why in (
                (self.record, {"kind": "arrival", "statement": missing}, "not the fallback"),
                (self.record, late, "a stated value was announced"), (self.record, {}, "a kind"),
                (self.record, {"kind": ["stated"]}, "a kind"), (self.record, "stated", "wrong type"),
                (self.record, {"kind": "Stated", "statement": missing}, "unknown kind"),
                (self.record, {"kind": "stated", "statement": missing, "round": 1}, "unknown or missing"),
                (self.drand, late, "not the fallback"), (self.drand, self.record["randomness"], "was announced"),
                (self.later, {**late, "kind": "drand"}, "unknown or missing"), (self.later, {**late, "round": 1001}, "decides"),
                (self.later, self.drand["randomness"], "981 decides")):
            with self.subTest(why):
                self.refused(record | {"randomness": value}, why)
        # The fallback `arrival` is for a stated value, too.
        record = altered(self.record, self.secret, 10, "fallback arrival", "missing")
        record["randomness"]["kind"] = "arrival"
        self.assertEqual(list(v.verify_record(dump(record)).by_rank), [1, 2, 3, 4])

    def test_list(self):
        for places, why in (("Ow==", "beyond"), ("GwA=", "number of bytes"), ("", "number of bytes"), ("Gg==", "root"),
                            ("Gx==", "only spelling"), ("Gw", "base64"), ("Gw==\n", "base64"), ("G_==", "base64")):
            with self.subTest(places):
                self.refused(self.record | {"places": places}, why)
        self.refused(self.record | {"format": "weir-draw-record-2"}, "format")

    def test_notes(self):
        note = self.record["checkpoint"]
        text, line = note.split("\n\n")
        cosigned = note + "— witness.example " + b64(bytes(76)) + "\n"
        v.verify_record(dump(self.record | {"checkpoint": cosigned}))
        other_id = "— shop.example/weir " + b64(bytes(5)) + "\n"
        v.verify_record(dump(self.record | {"checkpoint": note + other_id}))
        for bad, why in ((note[:-1], "not a signed note"), (note + "\n", "not a signed note"), (text + "\n", "not a signed"),
                         (note.replace("—", "-"), "form"), (note.replace("— ", "—  "), "form"),
                         (note[:-1] + " \n", "form"), (note + "— a+b AAAAAAA=\n", "form"),
                         (note + "— a\u00a0b AAAAAAA=\n", "form"), (note + "— a AAAAAA==\n", "too short"),
                         (note + "— a AAAAAAB=\n", "only spelling"), (note + "hello\n", "form"),
                         (note.replace("\n", "\r\n"), "control"), (note + "— a AAAAA\t\n", "control"),
                         (note + note.split("\n\n")[1], "2 signatures"), (text + "\n\n" + other_id, "0 signatures"),
                         (cosigned + "— w " + b64(bytes(37_500)) + "\n", "50,000")):
            with self.subTest(why):
                self.refused(self.record | {"checkpoint": bad}, why)
        line = "— {} AAAAAAA=\n"
        name = "w" * (50_000 - len((note + line.format("")).encode()))
        v.verify_record(dump(self.record | {"checkpoint": note + line.format(name)}))
        self.refused(self.record | {"checkpoint": note + line.format(name + "w")}, "50,000")

    def test_keys(self):
        key = self.record["key"]
        small = b"\x01" + (1).to_bytes(32, "little")
        small_id = v.sha256(b"shop.example/weir\n" + small)[:4].hex()
        def made(name, data):  # with the ID that fits
            return f"{name}+{v.sha256(name.encode() + bytes([10]) + data)[:4].hex()}+{b64(data)}"

        raw = base64.b64decode(key.split("+", 2)[2])
        self.assertEqual(made("shop.example/weir", raw), key)
        for bad in (made("shop.example/weir", b"\x02" + raw[1:]), made("shop.example/weir", raw + b"\0"),
                    made("shop example", raw), made("x" * 129, raw), made("sh\u00f6p", raw),
                    key.replace("+c77d8173", "+C77D8173"), key + "=", key.replace("+AYq", "+AYr"), "a",
                    key.replace("shop.example/weir", ""), f"shop.example/weir+{small_id}+{b64(small)}"):
            with self.subTest(bad):
                self.refused(self.record | {"key": bad}, "the key")
        with self.assertRaisesRegex(v.Refused, "not the operator's"):
            v.verify_record(dump(self.record), trusted=make_key("shop.example/weir", bytes(32)))
        # Signed by a key of another name.
        other = self.record | {"key": make_key("other.example", bytes(32))}
        self.refused(altered(other, bytes(32)), "line 1")

    def test_json(self):
        good = dump(self.record)
        v.verify_record(b" \r\n\t" + good + b"\n")
        drand = dump(self.drand)
        for bad in (good[:-1], good + b"x", b"\xef\xbb\xbf" + good, good[:-1] + b',"places":"Gw=="}', b"[" * 100_000, b"",
                    good.replace(b"Gw==", b"\\ud800"), good.replace(b"Gw==", b"\xff"), b"[]", b"null", b"1",
                    drand.replace(b":1000", b":1e3"), drand.replace(b":1000", b":1000.0"), drand.replace(b":1000", b":-1000"),
                    drand.replace(b":1000", b":01000"), drand.replace(b":1000", b":true"), drand.replace(b":1000", b':"1000"'),
                    drand.replace(b":1000", b":1000" + b"0" * 5000), drand.replace(b'"kind"', b'"kind":"drand","kind"'),
                    drand.replace(b":1000", b":NaN"), good + b" " * 4_000_000):
            self.refused(bad, ".")
        v.verify_record(good + b" " * (4_000_000 - len(good)))

    def test_receipts(self):
        draw = v.verify_record(dump(self.record))
        left = self.receipts[2]
        for receipt, change in ((0, {"position": 5}), (0, {"position": 0}), (0, {"position": True}), (0, {"position": None}),
                                (0, {"place": 5}), (0, {"place": -1}), (0, {"place": False}), (0, {"inLine": 1}),
                                (0, {"inLine": False, "position": None}), (2, {"inLine": True, "position": 1}),
                                (0, {"zone": "SALF"}), (0, {"event": "opening"}), (0, {"path": [1]}), (0, {"path": {}}),
                                (4, {"path": left["path"]}), (0, {"path": self.receipts[0]["path"][:2]}),
                                (0, {"path": self.receipts[0]["path"] * 2}), (4, {"path": [b64(bytes(31))]}),
                                (4, {"path": []}), (0, {"format": "weir-draw-record-1"}), (0, {"extra": 1})):
            with self.subTest(change):
                self.refused(self.receipts[receipt] | change, ".", draw, receipt=True)
                self.refused(self.receipts[receipt] | change, ".", None, receipt=True)
        # Right in itself, but not beside the record: all signed again, with another source or value.
        for line, by, said in ((9, "randomness stated a coin", None), (None, None, "value 1")):
            other = altered(self.record, self.secret, line, by, said)
            receipt = self.receipts[2] | {"checkpoint": other["checkpoint"], "randomness": other["randomness"]}
            v.verify_receipt(dump(receipt))
            self.refused(receipt, "than the record's", draw, receipt=True)
        other = self.drand["checkpoint"], self.drand["randomness"]
        self.refused(self.receipts[0] | {"checkpoint": other[0], "randomness": other[1]}, ".", draw, receipt=True)
        right = dump(left)
        v.verify_receipt(right + b" " * (200_000 - len(right)), draw)
        self.refused(right + b" " * (200_001 - len(right)), "200000", draw, receipt=True)

    def test_receipt_of_another_key(self):
        # Another key of the same name. With a round of drand nothing else gives it away.
        draw = v.verify_record(dump(self.drand))
        receipt = load("drand")["receipts"][0]
        receipt["key"] = make_key("shop.example/weir", bytes(32))
        receipt["checkpoint"] = make_note(text_of(receipt["checkpoint"]), receipt["key"], bytes(32))
        v.verify_receipt(dump(receipt))  # alone
        self.refused(receipt, "another key than the record's", draw, receipt=True)
        with self.assertRaises(v.Refused):
            v.verify_receipt(dump(receipt), trusted=self.drand["key"])


class Flips(unittest.TestCase):
    def test_every_byte(self):
        # One bit of each byte; all bits of all positions are in crates/draw/tests/draw/changes.rs.
        for name in ("one", "lottery", "drand"):
            case = load(name)
            draw = v.verify_record(dump(case["record"]))
            for value, check in ((case["record"], v.verify_record),
                                 (case["receipts"][0], lambda data: v.verify_receipt(data, draw))):
                good = dump(value)
                check(good)
                for i in range(len(good)):
                    for flip in (0x01, 0x20) if name == "one" else (1 << i % 8,):
                        bad = bytearray(good)
                        bad[i] ^= flip
                        with self.assertRaises((v.Refused, v.Unreadable), msg=f"{name}: byte {i} ^ {flip}"):
                            check(bytes(bad))


class CommandLine(unittest.TestCase):
    def run_it(self, *files, extra=()):
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for i, data in enumerate(files):
                names.append(os.path.join(folder, f"{i}.json"))
                if data is not None:
                    with open(names[-1], "wb") as file:
                        file.write(data)
            out = io.TextIOWrapper(io.BytesIO(), "utf-8")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                code = v.main([*names, *extra])
            out.flush()
            return code, out.buffer.getvalue().decode()

    def test_exit_codes(self):
        case = load("five")
        record, receipt = dump(case["record"]), dump(case["receipts"][0])
        wrong = dump(case["receipts"][0] | {"position": 2})
        key = ("--key", case["record"]["key"])
        for code, files, extra in ((0, [record], ()), (0, [record, receipt, receipt], key), (0, [receipt], key),
                                   (1, [record, wrong, receipt], ()), (1, [wrong.replace(b":2,", b":5,")], ()),
                                   (1, [record.replace(b"Gw==", b"Hw==")], ()), (1, [record], ("--key", "a")),
                                   (2, [None], ()), (2, [b"hello"], ()), (2, [record, None], ()), (2, [], ()),
                                   (2, [record], ("--key",))):
            self.assertEqual(self.run_it(*files, extra=extra)[0], code)
        self.assertIn("NOT CHECKED", self.run_it(receipt)[1])

    def test_output_is_escaped(self):
        record = next(case["record"] for case in load("right") if "U+202E" in case["about"])
        code, out = self.run_it(dump(record))
        self.assertEqual(code, 0)
        self.assertIn("dice\\u2028ok: \\u202ex", out)
        self.assertIn("few possible values", out)
        self.assertFalse(set("\u2028\u202e") & set(out))


class Size(unittest.TestCase):
    def test_600000_places(self):
        size, secret = 600_000, bytes([1]) * 32
        places = bytearray(hashlib.shake_256(b"places").digest(size // 8))
        people = int.from_bytes(places, "little").bit_count()
        key = make_key("shop.example/weir", secret)
        text = (f"shop.example/weir/a/b\n{size}\n{b64(v.list_root(places, size))}\nevent a\nzone b\n"
                "frozen 2023-08-23T15:59:20Z\nstart 2023-08-23T15:59:21Z\nalgorithm weir-draw-1\n"
                f"in-line {people}\nrandomness drand {v.QUICKNET} 1000\nfallback wait\n")
        record = dump({"format": "weir-draw-record-1", "key": key, "checkpoint": make_note(text, key, secret),
                       "places": b64(places), "randomness": load("drand")["record"]["randomness"]})
        begin = time.process_time()
        draw = v.verify_record(record)
        self.assertLess(time.process_time() - begin, 60)
        self.assertEqual(sorted(draw.by_rank), list(range(1, people + 1)))


if __name__ == "__main__":
    unittest.main()
