package jws

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// parseJWK reads one public key as a JWK (RFC 7517; RFC 7518, section 6; RFC 8037, section 2):
// kty RSA, EC on P-256, P-384 and P-521, or OKP on Ed25519, as [NewKey] accepts them. It is
// bound to its alg, or without one to the usual algorithm of such keys; its key ID is its kid,
// or without one is derived by the digest of the public key.
//
// A use must be sig, and key_ops, if there are any, must contain verify and nothing else but
// sign. Integers and coordinates have exactly one encoding: moduli and exponents without
// leading zeros, coordinates of the curve's full size. Other members, including x5c and x5u,
// are ignored; a duplicate member, even in different case, or a known one in a different case,
// is refused.
//
// The errors are "jwk", "private-key" if there is a member of a private or symmetric
// key, "jws-key-type", "key-use", [CheckAlgorithm], "key" and [CheckKeyID].
func parseJWK(data []byte) (*Key, error) {
	if len(data) > maxJWKSize {
		return nil, &Error{Check: checkJWK, Got: bytesText(len(data)), Want: "at most " + bytesText(maxJWKSize)}
	}
	r := strictjson.NewReader(data)
	j, err := readJWK(r)
	if err == nil {
		err = refuse(checkJWK, r.End())
	}
	if err != nil {
		return nil, err
	}
	return j.key()
}

// jwk are the members of a JWK that this package reads. A nil slice is a missing member.
type jwk struct {
	keyType, use, algorithm, curve []byte
	keyID                          []byte
	operations                     []string
	n, e, x, y                     []byte // base64url
}

// jwkMembers are the names that a JWK may have only in exactly this spelling.
var jwkMembers = []string{"kty", "use", "key_ops", "alg", "kid", "crv", "x", "y", "n", "e",
	"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"}

// readJWK reads the members of one JWK, but checks nothing about the key.
func readJWK(r *strictjson.Reader) (*jwk, error) {
	j := new(jwk)
	texts := map[string]*[]byte{
		"kty": &j.keyType, "use": &j.use, "alg": &j.algorithm, "kid": &j.keyID, "crv": &j.curve,
		"n": &j.n, "e": &j.e, "x": &j.x, "y": &j.y,
	}
	err := r.Object(func(name []byte) (err error) {
		if text := texts[string(name)]; text != nil {
			*text, err = r.Text()
			return err
		}
		switch string(name) {
		case "key_ops":
			j.operations, err = readOperations(r)
			return err
		case "d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv":
			return &Error{Check: checkPrivate, Got: "a key with the member " + string(name), Want: "a public key"}
		}
		if known := misspelt(name, jwkMembers); known != "" {
			return &Error{Check: checkJWK, Got: string(name), Want: known}
		}
		return r.Skip()
	})
	if err == nil && string(j.keyType) == "oct" {
		err = &Error{Check: checkPrivate, Got: "a symmetric key", Want: "a public key"}
	}
	return j, refuse(checkJWK, err)
}

// maxOperations is how many key_ops a key may have: twice as many as are registered.
const maxOperations = 16

// readOperations reads the array key_ops, and returns a non-nil slice.
func readOperations(r *strictjson.Reader) ([]string, error) {
	operations := []string{}
	err := r.Array(func() error {
		if len(operations) == maxOperations {
			return &Error{Check: checkJWK, Got: "more key_ops", Want: fmt.Sprintf("at most %d", maxOperations)}
		}
		operation, err := r.String()
		operations = append(operations, operation)
		return err
	})
	return operations, err
}

// key makes the key, and checks everything about it. "jws-key-type", "key-use" or
// CheckAlgorithm means that the key may be good, but is not for this package.
func (j *jwk) key() (*Key, error) {
	if err := j.checkUse(); err != nil {
		return nil, err
	}
	if j.algorithm != nil && asymmetric(string(j.algorithm)) == "" {
		return nil, &Error{Check: CheckAlgorithm, Got: string(j.algorithm), Want: "RS, PS or ES with 256, 384 or 512, or EdDSA"}
	}
	var public crypto.PublicKey
	var err error
	switch string(j.keyType) {
	case "RSA":
		public, err = j.rsa()
	case "EC":
		public, err = j.ecdsa()
	case "OKP":
		public, err = j.ed25519()
	case "":
		return nil, &Error{Check: checkJWK, Got: "no kty"}
	default:
		return nil, &Error{Check: checkKeyType, Got: "kty " + string(j.keyType), Want: "RSA, EC or OKP"}
	}
	if err != nil {
		return nil, err
	}
	if j.keyID != nil && len(j.keyID) == 0 {
		return nil, &Error{Check: CheckKeyID, Got: "an empty kid", Want: "1 to 1024 bytes, or no kid"}
	}
	k, err := NewKey(public, KeyOptions{KeyID: string(j.keyID), Algorithm: Algorithm(j.algorithm)})
	if own, ok := err.(*Error); ok && own.Check == CheckAlgorithm { //nolint:errorlint // NewKey's own
		// Known, but not for a key of this type: the JWK contradicts itself.
		return nil, &Error{Check: checkJWK, Got: "alg " + own.Got, Want: own.Want}
	}
	return k, err
}

// checkUse honours use and key_ops (RFC 7517, sections 4.2 and 4.3).
func (j *jwk) checkUse() error {
	if j.use != nil && string(j.use) != "sig" {
		return &Error{Check: checkKeyUse, Got: "use " + string(j.use), Want: "sig"}
	}
	if j.operations == nil {
		return nil
	}
	for i, operation := range j.operations {
		if slices.Contains(j.operations[:i], operation) {
			return &Error{Check: checkJWK, Got: "key_ops with " + refusal.Text(operation) + " twice", Want: "each operation once"}
		}
		if operation != "verify" && operation != "sign" {
			return &Error{Check: checkKeyUse, Got: "key_ops with " + operation, Want: "verify"}
		}
	}
	if !slices.Contains(j.operations, "verify") {
		return &Error{Check: checkKeyUse, Got: fmt.Sprintf("key_ops %v", j.operations), Want: "verify"}
	}
	return nil
}

// rsa reads the public key of RFC 7518, section 6.3.1.
func (j *jwk) rsa() (crypto.PublicKey, error) {
	modulus, errN := j.integer("n", j.n, maxRSABits/8)
	exponent, errE := j.integer("e", j.e, 4)
	if err := cmp.Or(errN, errE); err != nil {
		return nil, err
	}
	// If an int has 32 bits, one of 2^31 or more turns negative, and checkRSA refuses it.
	e := int(new(big.Int).SetBytes(exponent).Int64())
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: e}, nil
}

// ecdsa reads the public key of RFC 7518, section 6.2.1.
func (j *jwk) ecdsa() (crypto.PublicKey, error) {
	i := slices.IndexFunc(curves, func(c elliptic.Curve) bool { return c.Params().Name == string(j.curve) })
	if i < 0 {
		return nil, j.otherCurve("P-256, P-384 or P-521")
	}
	size := coordinateSize(curves[i])
	x, errX := j.octets("x", j.x, size)
	y, errY := j.octets("y", j.y, size)
	if err := cmp.Or(errX, errY); err != nil {
		return nil, err
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curves[i], slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, &Error{Check: checkKey, Got: "a point off its curve", Want: "one on " + string(j.curve), Err: err}
	}
	return public, nil
}

// ed25519 reads the public key of RFC 8037, section 2.
func (j *jwk) ed25519() (crypto.PublicKey, error) {
	if string(j.curve) != "Ed25519" {
		return nil, j.otherCurve("Ed25519")
	}
	x, err := j.octets("x", j.x, ed25519.PublicKeySize)
	if err != nil {
		return nil, err
	}
	return ed25519.PublicKey(x), nil
}

// otherCurve is the error for a curve that this package does not support.
func (j *jwk) otherCurve(want string) error {
	if len(j.curve) == 0 {
		return &Error{Check: checkJWK, Got: "no crv", Want: want}
	}
	return &Error{Check: checkKeyType, Got: "crv " + string(j.curve), Want: want}
}

// octets decodes a member of exactly size bytes.
func (j *jwk) octets(name string, text []byte, size int) ([]byte, error) {
	octets, err := decodeSegment(nil, text)
	if err != nil {
		return nil, &Error{Check: checkJWK, Got: name + " that is no base64url", Err: err}
	}
	if len(octets) != size {
		return nil, &Error{Check: checkJWK, Got: name + " of " + bytesText(len(octets)), Want: bytesText(size)}
	}
	return octets, nil
}

// integer decodes a Base64urlUInt of at most size bytes (RFC 7518, section 2).
func (j *jwk) integer(name string, text []byte, size int) ([]byte, error) {
	octets, err := decodeSegment(nil, text)
	switch {
	case err != nil:
		return nil, &Error{Check: checkJWK, Got: name + " that is no base64url", Err: err}
	case len(octets) == 0 || octets[0] == 0:
		return nil, &Error{Check: checkJWK, Got: name + " that is empty or begins with a zero byte", Want: "the shortest encoding of a positive number"}
	case len(octets) > size:
		return nil, &Error{Check: checkKey, Got: name + " of " + bytesText(len(octets)), Want: "at most " + bytesText(size)}
	}
	return octets, nil
}

// writtenJWK has the members of a JWK as kube-apiserver writes them, in its order.
type writtenJWK struct {
	Use       string    `json:"use"`
	KeyType   string    `json:"kty"`
	KeyID     string    `json:"kid"`
	Curve     string    `json:"crv,omitempty"`
	Algorithm Algorithm `json:"alg"`
	X         string    `json:"x,omitempty"`
	Y         string    `json:"y,omitempty"`
	N         string    `json:"n,omitempty"`
	E         string    `json:"e,omitempty"`
}

// MarshalJSON returns the key as a JWK, byte for byte as kube-apiserver serves it: use,
// kty, kid, crv, alg and then x and y, or n and e. The zero key is refused with
// "key".
func (k *Key) MarshalJSON() ([]byte, error) {
	if k == nil || k.public == nil {
		return nil, &Error{Check: checkKey, Got: "no key"}
	}
	j := writtenJWK{Use: "sig", KeyID: k.keyID, Algorithm: k.algorithm}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		j.KeyType, j.N = "RSA", encoding.EncodeToString(public.N.Bytes())
		j.E = encoding.EncodeToString(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			return nil, &Error{Check: checkKey, Got: "a point off its curve", Err: err}
		}
		end := 1 + coordinateSize(public.Curve)
		j.KeyType, j.Curve = "EC", public.Params().Name
		j.X, j.Y = encoding.EncodeToString(point[1:end]), encoding.EncodeToString(point[end:])
	case ed25519.PublicKey:
		j.KeyType, j.Curve, j.X = "OKP", "Ed25519", encoding.EncodeToString(public)
	}
	return json.Marshal(j)
}

// ParseJWKS reads a set of public keys (RFC 7517, section 5) and returns those with which this
// package verifies tokens, in order. Each is read as by parseJWK, with one difference that
// the RFC asks for: a key whose kty, crv, alg or use this package does not support, or whose
// key_ops are other ones, is left out. Anything else that makes a key unfit makes the whole
// set refused: a malformed or weak key, private or symmetric key material in any entry, two
// keys with the same key ID and algorithm. A set of no keys is not refused: the result is
// empty.
//
// The errors are "key-set" and those of parseJWK.
func ParseJWKS(data []byte) ([]*Key, error) {
	if len(data) > maxJWKSSize {
		return nil, &Error{Check: checkKeySet, Got: bytesText(len(data)), Want: "at most " + bytesText(maxJWKSSize)}
	}
	var entries []*jwk
	found := false
	// In a different case, keys is skipped: then it is missing, or a duplicate name.
	members := strictjson.Members{"keys": func(r *strictjson.Reader) error {
		found = true
		return r.Array(func() error {
			if len(entries) == MaxJWKSKeys {
				return &Error{Check: checkKeySet, Got: "more keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
			}
			j, err := readJWK(r)
			entries = append(entries, j)
			return err
		})
	}}
	err := members.Parse(data)
	if err == nil && !found {
		err = &Error{Check: checkKeySet, Got: "no member keys"}
	}
	if err != nil {
		return nil, refuse(checkKeySet, err)
	}
	return usable(entries)
}

// usable makes keys from all entries except those that are not for this package.
func usable(entries []*jwk) ([]*Key, error) {
	keys := make([]*Key, 0, len(entries))
	for _, j := range entries {
		k, err := j.key()
		if errors.Is(err, checkKeyType) || errors.Is(err, checkKeyUse) || errors.Is(err, CheckAlgorithm) {
			continue
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	return keys, nil
}

// MarshalJWKS returns a set of public keys as kube-apiserver serves it at /openid/v1/jwks: an
// object with the single member keys, each as [Key.MarshalJSON] writes it. Nil and zero keys
// are refused with "key"; two keys with the same key ID and algorithm, and more than
// [MaxJWKSKeys], with "key-set". [ParseJWKS] reads it.
func MarshalJWKS(keys []*Key) ([]byte, error) {
	if len(keys) > MaxJWKSKeys {
		return nil, &Error{Check: checkKeySet, Got: strconv.Itoa(len(keys)) + " keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
	}
	b := []byte(`{"keys":[`)
	for i, k := range keys {
		text, err := k.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	return append(b, `]}`...), nil
}

// checkDistinct refuses two keys with the same key ID and algorithm: one could not tell which
// of them a token means.
func checkDistinct(keys []*Key) error {
	type name struct {
		keyID     string
		algorithm Algorithm
	}
	seen := make(map[name]bool, len(keys))
	for _, k := range keys {
		n := name{k.keyID, k.algorithm}
		if seen[n] {
			return &Error{Check: checkKeySet, Got: "two keys " + refusal.Text(k.keyID) + " for " + string(k.algorithm), Want: "one for each key ID and algorithm"}
		}
		seen[n] = true
	}
	return nil
}
