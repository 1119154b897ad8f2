"""Opens a credential as a TPM does, by docs/protocol.md: TPM2_ActivateCredential in software.

AES (FIPS 197) is written out, since Python's standard library has none.
"""

import hashlib
import hmac

from join import elements
from signatures import CURVES, ECC, RSA, mask, mgf1
from structures import Reader, integer, need, tlv

SIZE, SEED, POINT, INTEGRITY = "credential-size", "credential-seed", "credential-point", "credential-integrity"
BROKEN = "the vector's private key"


def private_key(pkcs8):
    """A key of signatures.py and its private number."""
    _, algorithm, octets = elements(pkcs8, BROKEN)[:3]
    parts = elements(tlv(octets, 0x04, BROKEN)[0], BROKEN)
    if len(elements(algorithm, BROKEN)[1]) == 2:  # NULL
        n, e, d = (integer(part, BROKEN)[0] for part in parts[1:4])
        return (RSA, n, e), d
    d = int.from_bytes(tlv(parts[1], 0x04, BROKEN)[0], "big")
    number = next(n for n, curve in CURVES.items() if curve.oid == elements(algorithm, BROKEN)[1])
    return (ECC, number, *CURVES[number].times(d, CURVES[number].base)), d


def parameters(key):
    """The hash and the AES key's bits for an EK."""
    size = key[1].bit_length() if key[0] == RSA else 8 * CURVES[key[1]].width
    return {2048: ("sha256", 128), 256: ("sha256", 128), 3072: ("sha384", 256), 384: ("sha384", 256)}[size]


def blocks(block, bits):
    """The first bits of block(1), block(2), …"""
    out, i = b"", 0
    while 8 * len(out) < bits:
        i += 1
        out += block(i.to_bytes(4, "big"))
    return out[:bits // 8]


def kdfa(name, key, label, context, bits):
    return blocks(lambda i: hmac.new(key, i + label + b"\0" + context + bits.to_bytes(4, "big"), name).digest(), bits)


def kdfe(name, z, label, u, v, bits):
    return blocks(lambda i: hashlib.new(name, i + z + label + b"\0" + u + v).digest(), bits)


def open_oaep(key, d, name, encrypted):
    n, size = key[1], hashlib.new(name).digest_size
    width = (n.bit_length() + 7) // 8
    need(len(encrypted) == width, SIZE)
    need(int.from_bytes(encrypted, "big") < n, SEED)
    whole = pow(int.from_bytes(encrypted, "big"), d, n).to_bytes(width, "big")
    seed, db = whole[1:1 + size], whole[1 + size:]
    seed = mask(seed, mgf1(name, db, size))
    db = mask(db, mgf1(name, seed, len(db)))
    padding, _, message = db[size:].partition(b"\x01")
    need(whole[0] == 0 and db[:size] == hashlib.new(name, b"IDENTITY\0").digest() and not padding.strip(b"\0"), SEED)
    need(len(message) == size, SEED)
    return message


def open_point(key, d, name, encrypted):
    curve, r = CURVES[key[1]], Reader(encrypted, SIZE)
    x, y = r.buffer(curve.width), r.buffer(curve.width)
    r.end()
    need(len(x) == len(y) == curve.width, SIZE)
    point = int.from_bytes(x, "big"), int.from_bytes(y, "big")
    need(curve.holds(*point), POINT)
    z = curve.times(d, point)[0].to_bytes(curve.width, "big")
    return kdfe(name, z, b"IDENTITY", x, key[2].to_bytes(curve.width, "big"), 8 * hashlib.new(name).digest_size)


def open_credential(key, d, ak_name, credential):
    """The secret in a credential."""
    name, bits = parameters(key)
    size = hashlib.new(name).digest_size
    r = Reader(credential["idObject"], SIZE)
    mac, enc = r.buffer(size), r.data
    seed = (open_oaep if key[0] == RSA else open_point)(key, d, name, credential["encryptedSecret"])
    need(hmac.new(kdfa(name, seed, b"INTEGRITY", b"", 8 * size), enc + ak_name, name).digest() == mac, INTEGRITY)
    r = Reader(aes_cfb(kdfa(name, seed, b"STORAGE", ak_name, bits), enc), SIZE)
    secret = r.buffer(32)
    r.end()
    need(len(secret) == 32, SIZE)
    return secret


# AES-CFB with segments of a block and an IV of zeros.


def times_x(a):
    return a << 1 ^ (0x11B if a & 0x80 else 0)


def sbox():
    """Goes through p = 3^n and q = 3^-n, and so through all inverses."""
    box, p, q = [0x63] * 256, 1, 1
    for _ in range(255):
        p ^= times_x(p)
        for shift in (1, 2, 4):
            q ^= q << shift
        q = q & 0xFF ^ (0x09 if q & 0x80 else 0)
        for turn in range(5):
            box[p] ^= (q << turn | q >> 8 - turn) & 0xFF
    return box


SBOX = sbox()


def round_keys(key):
    words, n, rcon = [key[i:i + 4] for i in range(0, len(key), 4)], len(key) // 4, 1
    while len(words) < 4 * (n + 7):
        word = words[-1]
        if len(words) % n == 0:
            word = bytes([SBOX[word[1]] ^ rcon, SBOX[word[2]], SBOX[word[3]], SBOX[word[0]]])
            rcon = times_x(rcon)
        elif n == 8 and len(words) % n == 4:
            word = bytes(SBOX[b] for b in word)
        words.append(mask(words[-n], word))
    return [b"".join(words[i:i + 4]) for i in range(0, len(words), 4)]


def mixed(column):
    every = column[0] ^ column[1] ^ column[2] ^ column[3]
    return [b ^ every ^ times_x(b ^ column[(i + 1) % 4]) for i, b in enumerate(column)]


def aes(keys, block):
    state = mask(block, keys[0])
    for key in keys[1:]:
        state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]  # SubBytes and ShiftRows
        if key is not keys[-1]:
            state = [b for i in range(0, 16, 4) for b in mixed(state[i:i + 4])]
        state = mask(bytes(state), key)
    return state


def aes_cfb(key, encrypted):
    keys, before, out = round_keys(key), bytes(16), b""
    for i in range(0, len(encrypted), 16):
        block = encrypted[i:i + 16]
        out += mask(block, aes(keys, before)[:len(block)])
        before = block
    return out
