#!/usr/bin/env python3
"""Verifies a draw: its record, and receipts of single places. It is the second implementation of docs/app/draw.md.

    python3 verify_draw.py [--key NAME+ID+KEY] RECORD.json [RECEIPT.json ...]

It was written from that page alone, by somebody who had not seen the other verifiers. If it and they disagree about a file, the
page is not clear or one of them is wrong. It needs Python 3.10 and no package: curves, pairing and cipher are below. It has no
secrets, so nothing takes constant time. It calls nobody.

Exit code: 0 all right, 1 something is refused, 2 a file cannot be opened or is no JSON in UTF-8, or arguments are missing.

Invariant: a file is RIGHT only after each check of the page. Every other way out is an exception with its reason.
"""
import base64
import datetime
import functools
import hashlib
import json
import re
import struct
import sys
from array import array


class Refused(Exception):
    """The file says something that is wrong. The text tells what, and where."""


class Unreadable(Exception):
    """There is no file, or it is not JSON at all."""


def sha256(data):
    return hashlib.sha256(data).digest()


def demand(condition, what):
    if not condition:
        raise Refused(what)


# ---------------------------------------------------------------- small formats: everything has exactly one spelling

def base64_bytes(text, where):
    # Python's decoder is lenient (left-over bits, missing or early padding), so the spelling is compared afterwards.
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or characters that are not ASCII
        raise Refused(f"{where}: not base64")
    demand(base64.b64encode(data).decode() == text, f"{where}: not the only spelling in base64")
    return data


def number(text, low, high, where):
    demand(re.fullmatch("0|[1-9][0-9]{0,19}", text), f"{where}: not a number")
    demand(low <= int(text) <= high, f"{where}: not from {low} to {high}")
    return int(text)


def instant(text, where):
    """Seconds since 1970."""
    match = re.fullmatch("([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z", text)
    demand(match, f"{where}: not an instant")
    try:
        when = datetime.datetime(*map(int, match.groups()))
    except ValueError:
        raise Refused(f"{where}: there is no such instant")
    demand(when.year >= 1970 and text <= "9999-12-30T22:00:00Z", f"{where}: out of range")
    return int((when - datetime.datetime(1970, 1, 1)).total_seconds())


def one_line(text, where):
    """A text of one line. It may have U+2028 and characters that turn the writing around, so it is printed with repr()."""
    demand(1 <= len(text.encode()) <= 1024, f"{where}: not 1 to 1,024 bytes")
    demand(not re.search("[\x00-\x1f\x7f-\x9f]", text), f"{where}: has a control character")
    demand(text[0] != " " and text[-1] != " ", f"{where}: begins or ends with a space")
    return text


def after(prefix, line, where):
    demand(line.startswith(prefix), f"{where}: does not begin with '{prefix}'")
    return line[len(prefix):]


def json_object(data, limit):
    """Strict JSON: UTF-8, no repeated field, no number but integers, no lone surrogate."""
    demand(len(data) <= limit, f"the file has more than {limit} bytes")

    def pairs(items):
        demand(len(dict(items)) == len(items), "a field is repeated")
        return dict(items)

    def no_json(text):
        raise ValueError(f"{text} is no JSON")

    def no_number(text):
        raise Refused(f"the number {text[:20]} is not a whole number without sign, fraction and exponent")

    def whole(text):
        return number(text, 0, 10**12, "a number")

    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_int=whole, parse_float=no_number, parse_constant=no_json)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for lone surrogates, which are no text
    except (ValueError, RecursionError) as error:  # UnicodeError and JSONDecodeError are ValueErrors
        raise Unreadable(f"not JSON in UTF-8: {error}")
    return value


def fields(value, types, where):
    """The object has exactly these fields, each of its type. (True is an int for Python, so types are compared.)"""
    demand(type(value) is dict, f"{where}: not an object")
    demand(value.keys() == types.keys(), f"{where}: unknown or missing fields {sorted(value.keys() ^ types.keys())}")
    for name, kind in types.items():
        demand(type(value[name]) in kind, f"{where}: field '{name}' has the wrong type")


# ---------------------------------------------------------------- Ed25519 (RFC 8032), strict

ED_P, ED_L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
ED_D = -121665 * pow(121666, -1, ED_P) % ED_P
ED_ZERO = (0, 1, 1, 0)


def ed_add(p, q):  # extended coordinates (X, Y, Z, T), RFC 8032, section 5.1.4
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % ED_P, (p[1] + p[0]) * (q[1] + q[0]) % ED_P
    c, d = 2 * p[3] * q[3] * ED_D % ED_P, 2 * p[2] * q[2] % ED_P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % ED_P, g * h % ED_P, f * g % ED_P, e * h % ED_P


def ed_times(k, p):
    total = ED_ZERO
    for bit in bin(k)[2:]:
        total = ed_add(total, total)
        if bit == "1":
            total = ed_add(total, p)
    return total


def ed_same(p, q):
    return (p[0] * q[2] - q[0] * p[2]) % ED_P == 0 and (p[1] * q[2] - q[1] * p[2]) % ED_P == 0


def ed_point(data, where):
    """Decodes a point. Refuses y >= p, points beside the curve, and points of small order."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    demand(y < ED_P, f"{where}: not a point")
    x2 = (y * y - 1) * pow(ED_D * y * y + 1, -1, ED_P) % ED_P
    x = pow(x2, (ED_P + 3) // 8, ED_P)
    if (x * x - x2) % ED_P:
        x = x * pow(2, (ED_P - 1) // 4, ED_P) % ED_P
    demand((x * x - x2) % ED_P == 0 and not (x == 0 and sign), f"{where}: not a point")
    if x & 1 != sign:
        x = ED_P - x
    point = (x, y, 1, x * y % ED_P)
    demand(not ed_same(ed_times(8, point), ED_ZERO), f"{where}: a point of small order")
    return point


ED_BASE = ed_point((4 * pow(5, -1, ED_P) % ED_P).to_bytes(32, "little"), "base point")


@functools.lru_cache(16)  # a receipt repeats the checkpoint of its record
def ed_verify(key, message, signature, where):
    demand(len(signature) == 64, f"{where}: the signature has not 64 bytes")
    a, r = ed_point(key, f"{where}: the key"), ed_point(signature[:32], f"{where}: the signature")
    s = int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ED_L
    # Without the cofactor: with it, more signatures would be right.
    demand(s < ED_L and ed_same(ed_times(s, ED_BASE), ed_add(r, ed_times(k, a))), f"{where}: the signature is wrong")


# ---------------------------------------------------------------- BLS12-381: one check, e(S, g2) = e(H(message), key)

BLS_P = 0x1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab
BLS_R = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001
BLS_X = 0xd201000000010000  # the parameter of the curve is -BLS_X
G2_BASE = (
    (0x024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8,
     0x13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e),
    (0x0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801,
     0x0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be))
QUICKNET = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
QUICKNET_KEY = bytes.fromhex(
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
    "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a")
DRAND_DOMAIN = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"


def root(a):
    """The square root in the field of p (p mod 4 is 3), or None."""
    r = pow(a, (BLS_P + 1) // 4, BLS_P)
    return r if r * r % BLS_P == a % BLS_P else None


def g1_add(p, q, a=0):
    """Adds affine points of y^2 = x^3 + ax + b; None is the point at infinity."""
    if p is None or q is None:
        return p or q
    if p[0] == q[0]:
        if (p[1] + q[1]) % BLS_P == 0:
            return None
        slope = (3 * p[0] * p[0] + a) * pow(2 * p[1], -1, BLS_P)
    else:
        slope = (q[1] - p[1]) * pow(q[0] - p[0], -1, BLS_P)
    x = (slope * slope - p[0] - q[0]) % BLS_P
    return x, (slope * (p[0] - x) - p[1]) % BLS_P


def g1_times(k, p):
    total = None
    for bit in bin(k)[2:]:
        total = g1_add(total, total)
        if bit == "1":
            total = g1_add(total, p)
    return total


def g1_point(data):
    """Decodes a compressed point (three flags, then x) and demands the group of order r."""
    value = int.from_bytes(data, "big")
    flags, x = value >> 381, value & (2**381 - 1)
    demand(flags & 4 and not flags & 2 and x < BLS_P, "the round's signature: not a compressed point, or at infinity")
    y = root((x**3 + 4) % BLS_P)
    demand(y is not None, "the round's signature: not a point of the curve")
    if (y > BLS_P - y) != bool(flags & 1):
        y = BLS_P - y
    demand(g1_times(BLS_R, (x, y)) is None, "the round's signature: not in the group of order r")
    return x, y


# Fp2 = Fp[u] with u^2 = -1, as pairs.

def f2_mul(a, b):
    s, t = a[0] * b[0], a[1] * b[1]
    return (s - t) % BLS_P, ((a[0] + a[1]) * (b[0] + b[1]) - s - t) % BLS_P


def f2_sub(a, b):
    return (a[0] - b[0]) % BLS_P, (a[1] - b[1]) % BLS_P


def f2_scale(k, a):
    return k * a[0] % BLS_P, k * a[1] % BLS_P


def f2_inv(a):
    n = pow(a[0] * a[0] + a[1] * a[1], -1, BLS_P)
    return a[0] * n % BLS_P, -a[1] * n % BLS_P


def g2_point(data):
    """Decodes a compressed point of G2 that is known to be right: only for the constant key."""
    x = (int.from_bytes(data[48:], "big"), int.from_bytes(data[:48], "big") & (2**381 - 1))
    c, d = f2_mul(f2_mul(x, x), x)
    c, d = c + 4, d + 4  # y^2 = x^3 + 4(1 + u)
    norm, half = root(c * c + d * d), pow(2, -1, BLS_P)
    re_part = root((c + norm) * half)
    if re_part is None:
        re_part = root((c - norm) * half)
    y = (re_part, d * half * pow(re_part, -1, BLS_P) % BLS_P)
    negative = (-y[0] % BLS_P, -y[1] % BLS_P)
    larger, smaller = (y, negative) if (y[1], y[0]) > (negative[1], negative[0]) else (negative, y)
    return x, larger if data[0] & 0x20 else smaller


# Fp12 = Fp2[w] with w^6 = 1 + u, as lists of 6 elements of Fp2.
ONE12 = [(1, 0)] + [(0, 0)] * 5


def f12_mul(a, b):
    c = [[0, 0] for _ in range(11)]
    for i, s in enumerate(a):
        for j, t in enumerate(b):
            if t != (0, 0):  # lines are sparse
                c[i + j][0] += s[0] * t[0] - s[1] * t[1]
                c[i + j][1] += s[0] * t[1] + s[1] * t[0]
    for i in range(5):  # w^(6 + i) = (1 + u) w^i
        c[i][0] += c[i + 6][0] - c[i + 6][1]
        c[i][1] += c[i + 6][0] + c[i + 6][1]
    return [(x % BLS_P, y % BLS_P) for x, y in c[:6]]


def pairings_are_one(pairs):
    """Whether the product of the (optimal ate) pairings e(p, q) is 1, for p in G1 and q in G2."""

    def step(t, q, p):
        """The line through t and q (the tangent, if t is q) at p, and the point t + q."""
        if t == q:
            slope = f2_mul(f2_scale(3, f2_mul(t[0], t[0])), f2_inv(f2_scale(2, t[1])))
        else:
            slope = f2_mul(f2_sub(q[1], t[1]), f2_inv(f2_sub(q[0], t[0])))
        x = f2_sub(f2_sub(f2_mul(slope, slope), t[0]), q[0])
        y = f2_sub(f2_mul(slope, f2_sub(t[0], x)), t[1])
        # The untwisted point is (x / w^2, y / w^3). The line is multiplied by w^3: the final power removes that factor,
        # like those of vertical lines.
        line = [f2_sub(f2_mul(slope, t[0]), t[1]), (0, 0), f2_scale(-p[0], slope), (p[1], 0), (0, 0), (0, 0)]
        return line, (x, y)

    f, points = ONE12, [q for _, q in pairs]
    for bit in bin(BLS_X)[3:]:
        f = f12_mul(f, f)
        for i, (p, q) in enumerate(pairs):
            line, points[i] = step(points[i], points[i], p)
            f = f12_mul(f, line)
            if bit == "1":
                line, points[i] = step(points[i], q, p)
                f = f12_mul(f, line)
    # The curve's parameter is negative: f would have to be inverted, but here it is only compared with 1.
    result = ONE12
    for bit in bin((BLS_P**12 - 1) // BLS_R)[2:]:
        result = f12_mul(result, result)
        if bit == "1":
            result = f12_mul(result, f)
    return result == ONE12


# Hash to G1: BLS12381G1_XMD:SHA-256_SSWU_RO_ of RFC 9380, section 8.8.1. The simplified SWU map ends on the curve
# y^2 = x^3 + ISO_A x + ISO_B; the 11-isogeny of appendix E.2 leads from there to BLS12-381. All numbers that begin with ISO are
# data of that RFC.
ISO_A = 0x00144698a3b8e9433d693a02c96d4982b0ea985383ee66a8d8e8981aefd881ac98936f8da0e0f97f5cf428082d584c1d
ISO_B = 0x12e2908d11688030018b12e8753eee3b2016c1f0f24f4070a0b9c14fcef35ef55a23215a316ceaa5d1cc48e98e172be0
ISO_Z = 11
ISO_X_NUM = (  # from the constant term up
    0x11a05f2b1e833340b809101dd99815856b303e88a2d7005ff2627b56cdb4e2c85610c2d5f2e62d6eaeac1662734649b7,
    0x17294ed3e943ab2f0588bab22147a81c7c17e75b2f6a8417f565e33c70d1e86b4838f2a6f318c356e834eef1b3cb83bb,
    0x0d54005db97678ec1d1048c5d10a9a1bce032473295983e56878e501ec68e25c958c3e3d2a09729fe0179f9dac9edcb0,
    0x1778e7166fcc6db74e0609d307e55412d7f5e4656a8dbf25f1b33289f1b330835336e25ce3107193c5b388641d9b6861,
    0x0e99726a3199f4436642b4b3e4118e5499db995a1257fb3f086eeb65982fac18985a286f301e77c451154ce9ac8895d9,
    0x1630c3250d7313ff01d1201bf7a74ab5db3cb17dd952799b9ed3ab9097e68f90a0870d2dcae73d19cd13c1c66f652983,
    0x0d6ed6553fe44d296a3726c38ae652bfb11586264f0f8ce19008e218f9c86b2a8da25128c1052ecaddd7f225a139ed84,
    0x17b81e7701abdbe2e8743884d1117e53356de5ab275b4db1a682c62ef0f2753339b7c8f8c8f475af9ccb5618e3f0c88e,
    0x080d3cf1f9a78fc47b90b33563be990dc43b756ce79f5574a2c596c928c5d1de4fa295f296b74e956d71986a8497e317,
    0x169b1f8e1bcfa7c42e0c37515d138f22dd2ecb803a0c5c99676314baf4bb1b7fa3190b2edc0327797f241067be390c9e,
    0x10321da079ce07e272d8ec09d2565b0dfa7dccdde6787f96d50af36003b14866f69b771f8c285decca67df3f1605fb7b,
    0x06e08c248e260e70bd1e962381edee3d31d79d7e22c837bc23c0bf1bc24c6b68c24b1b80b64d391fa9c8ba2e8ba2d229,
)
ISO_X_DEN = (  # from the constant term up
    0x08ca8d548cff19ae18b2e62f4bd3fa6f01d5ef4ba35b48ba9c9588617fc8ac62b558d681be343df8993cf9fa40d21b1c,
    0x12561a5deb559c4348b4711298e536367041e8ca0cf0800c0126c2588c48bf5713daa8846cb026e9e5c8276ec82b3bff,
    0x0b2962fe57a3225e8137e629bff2991f6f89416f5a718cd1fca64e00b11aceacd6a3d0967c94fedcfcc239ba5cb83e19,
    0x03425581a58ae2fec83aafef7c40eb545b08243f16b1655154cca8abc28d6fd04976d5243eecf5c4130de8938dc62cd8,
    0x13a8e162022914a80a6f1d5f43e7a07dffdfc759a12062bb8d6b44e833b306da9bd29ba81f35781d539d395b3532a21e,
    0x0e7355f8e4e667b955390f7f0506c6e9395735e9ce9cad4d0a43bcef24b8982f7400d24bc4228f11c02df9a29f6304a5,
    0x0772caacf16936190f3e0c63e0596721570f5799af53a1894e2e073062aede9cea73b3538f0de06cec2574496ee84a3a,
    0x14a7ac2a9d64a8b230b3f5b074cf01996e7f63c21bca68a81996e1cdf9822c580fa5b9489d11e2d311f7d99bbdcc5a5e,
    0x0a10ecf6ada54f825e920b3dafc7a3cce07f8d1d7161366b74100da67f39883503826692abba43704776ec3a79a1d641,
    0x095fc13ab9e92ad4476d6e3eb3a56680f682b4ee96f7d03776df533978f31c1593174e4b4b7865002d6384d168ecdd0a,
    1,
)
ISO_Y_NUM = (  # from the constant term up
    0x090d97c81ba24ee0259d1f094980dcfa11ad138e48a869522b52af6c956543d3cd0c7aee9b3ba3c2be9845719707bb33,
    0x134996a104ee5811d51036d776fb46831223e96c254f383d0f906343eb67ad34d6c56711962fa8bfe097e75a2e41c696,
    0x00cc786baa966e66f4a384c86a3b49942552e2d658a31ce2c344be4b91400da7d26d521628b00523b8dfe240c72de1f6,
    0x01f86376e8981c217898751ad8746757d42aa7b90eeb791c09e4a3ec03251cf9de405aba9ec61deca6355c77b0e5f4cb,
    0x08cc03fdefe0ff135caf4fe2a21529c4195536fbe3ce50b879833fd221351adc2ee7f8dc099040a841b6daecf2e8fedb,
    0x16603fca40634b6a2211e11db8f0a6a074a7d0d4afadb7bd76505c3d3ad5544e203f6326c95a807299b23ab13633a5f0,
    0x04ab0b9bcfac1bbcb2c977d027796b3ce75bb8ca2be184cb5231413c4d634f3747a87ac2460f415ec961f8855fe9d6f2,
    0x0987c8d5333ab86fde9926bd2ca6c674170a05bfe3bdd81ffd038da6c26c842642f64550fedfe935a15e4ca31870fb29,
    0x09fc4018bd96684be88c9e221e4da1bb8f3abd16679dc26c1e8b6e6a1f20cabe69d65201c78607a360370e577bdba587,
    0x0e1bba7a1186bdb5223abde7ada14a23c42a0ca7915af6fe06985e7ed1e4d43b9b3f7055dd4eba6f2bafaaebca731c30,
    0x19713e47937cd1be0dfd0b8f1d43fb93cd2fcbcb6caf493fd1183e416389e61031bf3a5cce3fbafce813711ad011c132,
    0x18b46a908f36f6deb918c143fed2edcc523559b8aaf0c2462e6bfe7f911f643249d9cdf41b44d606ce07c8a4d0074d8e,
    0x0b182cac101b9399d155096004f53f447aa7b12a3426b08ec02710e807b4633f06c851c1919211f20d4c04f00b971ef8,
    0x0245a394ad1eca9b72fc00ae7be315dc757b3b080d4c158013e6632d3c40659cc6cf90ad1c232a6442d9d3f5db980133,
    0x05c129645e44cf1102a159f748c4a3fc5e673d81d7e86568d9ab0f5d396a7ce46ba1049b6579afb7866b1e715475224b,
    0x15e6be4e990f03ce4ea50b3b42df2eb5cb181d8f84965a3957add4fa95af01b2b665027efec01c7704b456be69c8b604,
)
ISO_Y_DEN = (  # from the constant term up
    0x16112c4c3a9c98b252181140fad0eae9601a6de578980be6eec3232b5be72e7a07f3688ef60c206d01479253b03663c1,
    0x1962d75c2381201e1a0cbd6c43c348b885c84ff731c4d59ca4a10356f453e01f78a4260763529e3532f6102c2e49a03d,
    0x058df3306640da276faaae7d6e8eb15778c4855551ae7f310c35a5dd279cd2eca6757cd636f96f891e2538b53dbf67f2,
    0x16b7d288798e5395f20d23bf89edb4d1d115c5dbddbcd30e123da489e726af41727364f2c28297ada8d26d98445f5416,
    0x0be0e079545f43e4b00cc912f8228ddcc6d19c9f0f69bbb0542eda0fc9dec916a20b15dc0fd2ededda39142311a5001d,
    0x08d9e5297186db2d9fb266eaac783182b70152c65550d881c5ecd87b6f0f5a6449f38db9dfa9cce202c6477faaf9b7ac,
    0x166007c08a99db2fc3ba8734ace9824b5eecfdfa8d0cf8ef5dd365bc400a0051d5fa9c01a58b1fb93d1a1399126a775c,
    0x16a3ef08be3ea7ea03bcddfabba6ff6ee5a4375efa1f4fd7feb34fd206357132b920f5b00801dee460ee415a15812ed9,
    0x1866c8ed336c61231a1be54fd1d74cc4f9fb0ce4c6af5920abc5750c4bf39b4852cfe2f7bb9248836b233d9d55535d4a,
    0x167a55cda70a6e1cea820597d94a84903216f763e13d87bb5308592e7ea7d4fbc7385ea3d529b35e346ef48bb8913f55,
    0x04d2f259eea405bd48f010a01ad2911d9c6dd039bb61a6290e591b36e636a5c871a5c29f4f83060400f8b49cba8f6aa8,
    0x0accbb67481d033ff5852c1e48c50c477f94ff8aefce42d28c0f9a88cea7913516f968986f7ebbea9684b529e2561092,
    0x0ad6b9514c767fe3c3613144b45f1496543346d98adf02267d5ceef9a00d9b8693000763e3b90ac11e99b138573345cc,
    0x02660400eb2e4f3b628bdd0d53cd76f2bf565b94e72927c1cb748df27942480e420517bd8714cc80d1fadc1326ed06f7,
    0x0e0fa1d816ddc03e6b24255e0d7819c171c40f65e273b853324efcd6356caa205ca2f570f13497804415473a1d634b8f,
    1,
)


def expand_message(message, domain, size):  # RFC 9380, section 5.3.1, with SHA-256
    suffix = domain + bytes([len(domain)])
    first = sha256(bytes(64) + message + struct.pack(">HB", size, 0) + suffix)
    block, out = bytes(32), b""
    for i in range(1, -(-size // 32) + 1):
        block = sha256(bytes(x ^ y for x, y in zip(first, block)) + bytes([i]) + suffix)
        out += block
    return out[:size]


def map_to_g1(u):  # RFC 9380, section 6.6.2
    def g(x):
        return (x**3 + ISO_A * x + ISO_B) % BLS_P

    zu2 = ISO_Z * u * u % BLS_P
    t = (zu2 * zu2 + zu2) % BLS_P
    if t == 0:
        x = ISO_B * pow(ISO_Z * ISO_A, -1, BLS_P) % BLS_P
    else:
        x = -ISO_B * pow(ISO_A, -1, BLS_P) * (1 + pow(t, -1, BLS_P)) % BLS_P
    y = root(g(x))
    if y is None:
        x = zu2 * x % BLS_P
        y = root(g(x))
    if u & 1 != y & 1:
        y = BLS_P - y

    def at_x(coefficients):
        value = 0
        for k in reversed(coefficients):
            value = (value * x + k) % BLS_P
        return value

    return (at_x(ISO_X_NUM) * pow(at_x(ISO_X_DEN), -1, BLS_P) % BLS_P,
            y * at_x(ISO_Y_NUM) * pow(at_x(ISO_Y_DEN), -1, BLS_P) % BLS_P)


def hash_to_g1(message, domain):
    data = expand_message(message, domain, 128)
    u0, u1 = (int.from_bytes(data[i:i + 64], "big") % BLS_P for i in (0, 64))
    return g1_times(1 + BLS_X, g1_add(map_to_g1(u0), map_to_g1(u1)))  # 1 + BLS_X clears the cofactor


@functools.lru_cache(4)  # a receipt repeats the round of its record
def verify_round(number_of_round, signature):
    """Verifies a round of quicknet (scheme bls-unchained-g1-rfc9380) and returns its randomness."""
    demand(re.fullmatch("[0-9a-f]{96}", signature), "the round's signature: not 96 hex digits")
    data = bytes.fromhex(signature)
    x, y = g1_point(data)
    message = hash_to_g1(sha256(struct.pack(">Q", number_of_round)), DRAND_DOMAIN)
    right = pairings_are_one([((x, BLS_P - y), G2_BASE), (message, g2_point(QUICKNET_KEY))])
    demand(right, f"the round's signature: not that of round {number_of_round}")
    return sha256(data)


# ---------------------------------------------------------------- signed notes

def public_key(text):
    """NAME+ID+KEY, as (name, id, key)."""
    parts = text.split("+", 2)  # base64 may contain +, a name may not
    demand(len(parts) == 3, "the key: not NAME+ID+KEY")
    name, key_id, data = parts[0], parts[1], base64_bytes(parts[2], "the key")
    demand(re.fullmatch("[!-~]{1,128}", name), "the key: its name is not 1 to 128 visible ASCII characters")
    demand(len(data) == 33 and data[0] == 1, "the key: not an Ed25519 key")
    demand(key_id == sha256(name.encode() + b"\n" + data)[:4].hex(), "the key: its ID does not fit")
    ed_point(data[1:], "the key")
    return name, bytes.fromhex(key_id), data[1:]


def signed_text(note, key, where):
    """Verifies a signed note and returns its text."""
    demand(len(note.encode()) <= 50_000, f"{where}: more than 50,000 bytes")
    demand(not re.search("[\x00-\x09\x0b-\x1f]", note), f"{where}: has a control character")
    text, gap, signatures = note.rpartition("\n\n")
    demand(gap and signatures.endswith("\n"), f"{where}: not a signed note")
    text += "\n"
    ours = []
    for line in signatures[:-1].split("\n"):
        match = re.fullmatch(r"— ([^\s+]+) ([A-Za-z0-9+/=]+)", line)  # \s is Unicode's white space
        demand(match, f"{where}: a signature line has not the form '— NAME BASE64'")
        data = base64_bytes(match[2], f"{where}: a signature line")
        demand(len(data) > 4, f"{where}: a signature line is too short")
        if match[1] == key[0] and data[:4] == key[1]:
            ours.append(data[4:])
    demand(len(ours) == 1, f"{where}: {len(ours)} signatures by the operator's key, not one")
    ed_verify(key[2], text.encode(), ours[0], where)
    return text


# ---------------------------------------------------------------- checkpoint, statement, randomness

class Checkpoint:
    """The 11 lines, read strictly."""

    def __init__(self, text, key_name):
        demand(text.count("\n") == 11, "the checkpoint: not 11 lines")
        line = text.split("\n")
        self.text, self.origin = text, line[0]
        self.size = number(line[1], 0, 20_000_000, "the checkpoint, line 2")
        self.root = base64_bytes(line[2], "the checkpoint, line 3")
        demand(len(self.root) == 32, "the checkpoint, line 3: not 32 bytes")
        self.event = after("event ", line[3], "the checkpoint, line 4")
        self.zone = after("zone ", line[4], "the checkpoint, line 5")
        for name, where in ((self.event, 4), (self.zone, 5)):
            good = re.fullmatch("[A-Za-z0-9_.:-]{1,64}", name) and name not in (".", "..")
            demand(good, f"the checkpoint, line {where}: not the name of an event or a zone")
        demand(self.origin == f"{key_name}/{self.event}/{self.zone}",
               "the checkpoint, line 1: not made of the key's name, the event and the zone")
        self.frozen = instant(after("frozen ", line[5], "the checkpoint, line 6"), "the checkpoint, line 6")
        instant(after("start ", line[6], "the checkpoint, line 7"), "the checkpoint, line 7")
        demand(line[7] == "algorithm weir-draw-1", "the checkpoint, line 8: another algorithm")
        self.in_line = number(after("in-line ", line[8], "the checkpoint, line 9"), 0, self.size, "the checkpoint, line 9")
        source = after("randomness ", line[9], "the checkpoint, line 10")
        self.round = None  # stays None if the value is stated
        if source.startswith("drand "):
            chain, _, announced = source[6:].partition(" ")
            demand(chain == QUICKNET, "the checkpoint, line 10: another chain than quicknet")
            self.round = number(announced, 1, 80_000_000_000, "the checkpoint, line 10: the round")
            demand(1692803367 + 3 * (self.round - 1) > self.frozen,
                   "the checkpoint, line 10: the round does not come after the freeze")
        else:
            self.source = one_line(after("stated ", source, "the checkpoint, line 10"), "the checkpoint, line 10")
        self.fallback = after("fallback ", line[10], "the checkpoint, line 11")
        if self.fallback.startswith("later "):
            demand(self.round is not None, "the checkpoint, line 11: 'later' is only for drand")
            self.later = number(self.fallback[6:], 1, 604_800, "the checkpoint, line 11")
            self.fallback = "later"
        else:
            demand(self.fallback in ("wait", "arrival"), "the checkpoint, line 11: an unknown fallback")


def statement(note, key, checkpoint):
    """Verifies a statement. Returns its value, or None if it says `missing`."""
    text = signed_text(note, key, "the statement")
    demand(text.count("\n") == 3, "the statement: not 3 lines")
    origin, hashed, said, _ = text.split("\n")
    demand(origin == checkpoint.origin, "the statement: of another draw")
    digest = base64.b64encode(sha256(checkpoint.text.encode())).decode()
    demand(hashed == f"checkpoint {digest}", "the statement: about another checkpoint")
    if said == "missing":
        return None
    return one_line(after("value ", said, "the statement, line 3"), "the statement, line 3")


def verify_randomness(value, key, checkpoint):
    """Returns the bytes that go into the seed, or None for the order of arrival; and what was found, in words."""
    where = "the randomness"
    demand(type(value) is dict and type(value.get("kind")) is str, f"{where}: not an object with a kind")
    kind = value["kind"]
    parts = {"drand": ("round", "signature"), "later": ("round", "signature", "statement"),
             "stated": ("statement",), "arrival": ("statement",)}
    demand(kind in parts, f"{where}: an unknown kind")
    fields(value, {"kind": [str]} | {name: [int] if name == "round" else [str] for name in parts[kind]}, where)

    # Whether this kind is allowed is checked first: it is cheap.
    if kind in ("drand", "later"):
        demand(checkpoint.round is not None, f"{where}: a round of drand, but a stated value was announced")
        expected = checkpoint.round
        if kind == "later":
            demand(checkpoint.fallback == "later", f"{where}: a later round, which is not the fallback")
            expected += -(-checkpoint.later // 3)
        demand(value["round"] == expected, f"{where}: round {value['round']}, but {expected} decides")
    elif kind == "stated":
        demand(checkpoint.round is None, f"{where}: a stated value, but a round of drand was announced")
    else:
        demand(checkpoint.fallback == "arrival", f"{where}: the order of arrival, which is not the fallback")

    said = statement(value["statement"], key, checkpoint) if "statement" in value else None
    demand((said is not None) == (kind == "stated"), f"{where}: the statement does not say what kind '{kind}' needs")
    if kind == "stated":
        return said.encode(), (
            f"the value {said!r} is stated by the operator, for {checkpoint.source!r}. That the operator did not choose the order "
            "holds only if nobody could know or guess the value before: with few possible values an operator can try many "
            "checkpoints before signing one")
    if kind == "arrival":
        return None, "the operator states that the randomness did not come; the order is that of arrival"
    late = " (the operator states that the announced round did not come)" if kind == "later" else ""
    return verify_round(value["round"], value["signature"]), f"round {value['round']} of quicknet is genuine{late}"


# ---------------------------------------------------------------- the tree (RFC 6962)

def tree_root(hashes):
    """The root over hashes, level by level: a last one without a neighbour goes up as it is."""
    while len(hashes) > 1:
        odd = [hashes[-1]] if len(hashes) % 2 else []
        hashes = [sha256(b"\x01" + left + right) for left, right in zip(hashes[::2], hashes[1::2])] + odd
    return hashes[0] if hashes else sha256(b"")


def list_root(places, size):
    # In parts of 2^16 leaves, which are whole subtrees, so that 20 million places do not need gigabytes.
    parts, pack = [], struct.Struct(">BIB").pack
    for start in range(0, size, 1 << 16):
        parts.append(tree_root([sha256(pack(0, i, places[i >> 3] >> (i & 7) & 1))
                                for i in range(start, min(size, start + (1 << 16)))]))
    return tree_root(parts)


def root_of_path(place, in_line, path, size):
    """The root that follows from a path (RFC 9162, section 2.1.3.2)."""
    node, last, value = place, size - 1, sha256(struct.pack(">BIB", 0, place, in_line))
    for sibling in path:
        demand(last > 0, "the path is too long")
        if node & 1 or node == last:
            value = sha256(b"\x01" + sibling + value)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            value = sha256(b"\x01" + value + sibling)
        node, last = node >> 1, last >> 1
    demand(last == 0, "the path is too short")
    return value


# ---------------------------------------------------------------- seed, stream and shuffle

def draw_seed(checkpoint, randomness):
    return sha256(b"".join(struct.pack(">Q", len(part)) + part
                           for part in (b"weir-draw-1/seed", checkpoint.text.encode(), randomness)))


def chacha20_words(key, counter, blocks):
    """The words of so many blocks of ChaCha20 (RFC 8439) with nonce 0.

    All blocks are computed at once: one big integer holds the same word of every block, each in a lane of 64 bits. The
    upper half of a lane takes the carry of a sum and the overhang of a shift; the mask clears it. That is about 50 times as
    fast as one block after the other.
    """
    every = int.from_bytes(b"\x01\0\0\0\0\0\0\0" * blocks, "little")
    mask = every * 0xFFFFFFFF
    start = [every * w for w in struct.unpack("<12I", b"expand 32-byte k" + key)]
    start.append(int.from_bytes(struct.pack(f"<{blocks}Q", *range(counter, counter + blocks)), "little"))
    start += [0, 0, 0]
    x = list(start)

    def quarter(a, b, c, d):
        for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) & mask
            t = x[r] ^ x[p]
            x[r] = (t << n | t >> 32 - n) & mask

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    words = [0] * (16 * blocks)
    for i in range(16):
        word = ((x[i] + start[i]) & mask).to_bytes(8 * blocks, "little")
        words[i::16] = struct.unpack(f"<{2 * blocks}I", word)[::2]
    return words


def stream(seed):
    counter, blocks = 0, 16
    while True:
        yield from chacha20_words(seed, counter, blocks)
        counter, blocks = counter + blocks, 1024


def shuffle(seed, people):
    """Positions by rank."""
    p = array("I", range(1, people + 1))
    words = stream(seed)
    for last in range(people - 1, 0, -1):
        bound = last + 1
        limit = 2**32 - 2**32 % bound
        word = next(words)
        while word >= limit:
            word = next(words)
        other = word % bound
        p[last], p[other] = p[other], p[last]
    return p


# ---------------------------------------------------------------- the record and the receipt

class Draw:
    """What was found right in a record, or in the common part of a receipt."""

    def __init__(self, value, trusted, say):
        """Verifies the key and the checkpoint."""
        self.key = public_key(value["key"])
        demand(trusted is None or value["key"] == trusted, "the key: not the operator's that was given")
        say(f"the key is {value['key']}" + ("" if trusted else " (give --key to compare it with the operator's)"))
        self.checkpoint = Checkpoint(signed_text(value["checkpoint"], self.key, "the checkpoint"), self.key[0])
        say(f"the checkpoint of {self.checkpoint.origin} is well formed and has that key's signature")
        self.randomness = value["randomness"]

    def verify_randomness(self, say):
        random_bytes, found = verify_randomness(self.randomness, self.key, self.checkpoint)
        say(found)
        return random_bytes


def verify_record(data, trusted=None, say=lambda text: None):
    value = json_object(data, 4_000_000)
    text = [str]
    fields(value, {"format": text, "key": text, "checkpoint": text, "places": text, "randomness": [dict]}, "the record")
    demand(value["format"] == "weir-draw-record-1", "the record: an unknown format")
    draw = Draw(value, trusted, say)
    checkpoint = draw.checkpoint

    draw.places = places = base64_bytes(value["places"], "the list")
    demand(len(places) == -(-checkpoint.size // 8), "the list: not the number of bytes for its places")
    beyond = -checkpoint.size % 8
    demand(not beyond or places[-1] >> 8 - beyond == 0, "the list: has a bit beyond its last place")
    demand(list_root(places, checkpoint.size) == checkpoint.root, "the list: not the one that was frozen, by its root")
    say(f"the list of {checkpoint.size} places has the root {base64.b64encode(checkpoint.root).decode()}")
    people = int.from_bytes(places, "little").bit_count()
    demand(people == checkpoint.in_line, f"the list: {people} in line, but the checkpoint says {checkpoint.in_line}")
    say(f"{people} of them are in line, as the checkpoint says")

    random_bytes = draw.verify_randomness(say)
    if random_bytes is None:
        draw.seed, draw.by_rank = None, array("I", range(1, people + 1))
        say("the order is that of arrival, without a seed")
    else:
        draw.seed = draw_seed(checkpoint, random_bytes)
        draw.by_rank = shuffle(draw.seed, people)
        say(f"the seed is {draw.seed.hex()}, and the order was computed from it")
    return draw


def position(draw, place):
    """The position of a place, or None."""
    if not draw.places[place >> 3] >> (place & 7) & 1:
        return None
    before = int.from_bytes(draw.places[:(place >> 3) + 1], "little") & (1 << place) - 1
    return draw.by_rank[before.bit_count()]


def verify_receipt(data, draw=None, trusted=None, say=lambda text: None):
    """With the draw of a right record, everything; without, everything but the position."""
    value = json_object(data, 200_000)
    text = [str]
    fields(value, {"format": text, "event": text, "zone": text, "place": [int], "inLine": [bool],
                   "position": [int, type(None)], "path": [list], "key": text, "checkpoint": text,
                   "randomness": [dict]}, "the receipt")
    demand(value["format"] == "weir-draw-receipt-1", "the receipt: an unknown format")
    own = Draw(value, trusted, say)
    checkpoint, place, in_line, where = own.checkpoint, value["place"], value["inLine"], value["position"]
    demand(value["event"] == checkpoint.event, "the receipt: another event than in the checkpoint")
    demand(value["zone"] == checkpoint.zone, "the receipt: another zone than in the checkpoint")
    demand(place < checkpoint.size, "the receipt: there is no such place")
    demand(in_line == (where is not None), "the receipt: a position without being in line, or the reverse")
    demand(where is None or 1 <= where <= checkpoint.in_line, "the receipt: there is no such position")
    path = []
    for i, entry in enumerate(value["path"]):
        demand(type(entry) is str, f"the receipt, hash {i} of the path: not a text")
        path.append(base64_bytes(entry, f"the receipt, hash {i} of the path"))
        demand(len(path[-1]) == 32, f"the receipt, hash {i} of the path: not 32 bytes")
    demand(root_of_path(place, in_line, path, checkpoint.size) == checkpoint.root,
           "the receipt: its place, so stated, is not in the list that was frozen")
    say(f"place {place} is in the list as {'in line' if in_line else 'not in line'}")
    own.verify_randomness(say)
    if draw is None:
        say(f"NOT CHECKED, because the record is missing: whether the position is {where}")
        return
    demand(own.key == draw.key, "the receipt: another key than the record's")
    demand(checkpoint.text == draw.checkpoint.text, "the receipt: another checkpoint than the record's")
    demand(own.randomness == draw.randomness, "the receipt: another randomness than the record's")
    demand(where == position(draw, place), f"the receipt: position {where}, but it is {position(draw, place)}")
    say("no position, as it was not in line" if where is None else f"its position is {where}")


def main(arguments):
    sys.stdout.reconfigure(errors="backslashreplace")  # a stated value may have letters that the terminal has not
    trusted = None
    if "--key" in arguments[:-1]:
        at = arguments.index("--key")
        trusted = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2:]
    if not arguments or "--key" in arguments:
        print(__doc__, file=sys.stderr)
        return 2
    draw, code = None, 0
    for i, name in enumerate(arguments):
        def say(found):
            print(f"{name}: {found}" if found.startswith("NOT CHECKED") else f"{name}: ok: {found}")
        try:
            try:
                with open(name, "rb") as file:
                    data = file.read(4_000_001)  # one byte more than a record may have
            except OSError as error:
                raise Unreadable(error.strerror)
            # A first file that calls itself a receipt is checked alone.
            if i == 0 and b'"weir-draw-receipt-1"' not in data:
                draw = verify_record(data, trusted, say)
            else:
                verify_receipt(data, draw, trusted, say)
            print(f"{name}: RIGHT" if draw else f"{name}: RIGHT as far as it was checked")
        except Refused as error:
            print(f"{name}: REFUSED: {error}")
            code = max(code, 1)
        except Unreadable as error:
            print(f"{name}: UNREADABLE: {error}")
            code = 2
        if i == 0 and code:
            if arguments[1:]:
                print("the receipts were not checked, because the first file is not right")
            break
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
