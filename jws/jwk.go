package jws

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// jwk are the members of a JWK that this package reads (RFC 7517; RFC 7518, section 6; RFC 8037,
// section 2). A member whose value is null, "" or [] counts as missing.
type jwk struct {
	texts      map[string]string // by the names of textMembers
	operations []string
	unfit      error // why it is no key, although it is JSON
}

// textMembers are the members with text values; n, e, x and y are in base64url.
var textMembers = []string{"kty", "use", "alg", "kid", "crv", "x", "y", "n", "e"}

// privateMembers are the members of private and symmetric keys.
var privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"}

// jwkMembers are the names that a JWK may have only in exactly this spelling.
var jwkMembers = slices.Concat(textMembers, []string{"key_ops"}, privateMembers)

// readJWK reads the members of one JWK. An error means that the text is not JSON that every
// reader understands in the same way, or that it holds a private or symmetric key; key reports any
// other fault.
func readJWK(r *strictjson.Reader) (*jwk, error) {
	j := &jwk{texts: map[string]string{}}
	if kind := r.Type(); kind != strictjson.ObjectType && kind != strictjson.Invalid {
		j.leaveOut("a key that is no object", "an object")
		return j, refuse(checkJWK, r.Skip())
	}
	err := r.Object(func(name []byte) error {
		known, kind := misspelt(name, jwkMembers), r.Type()
		switch {
		case slices.Contains(privateMembers, known):
			if nothing, err := isNothing(r); nothing || err != nil {
				return err
			}
			return &Error{Check: checkPrivate, Got: "a key with the member " + known, Want: "a public key"}
		case known == "" || kind == strictjson.NullType:
		case known != string(name):
			j.leaveOut(string(name), known)
		case known == "key_ops" && kind == strictjson.ArrayType:
			return j.readOperations(r)
		case known != "key_ops" && kind == strictjson.StringType:
			value, err := r.String()
			j.texts[known] = value
			return err
		default:
			j.leaveOut(known+" of another type", "a string, or an array of strings for key_ops")
		}
		return r.Skip()
	})
	if err == nil && j.texts["kty"] == "oct" {
		err = &Error{Check: checkPrivate, Got: "a symmetric key", Want: "a public key"}
	}
	return j, refuse(checkJWK, err)
}

// leaveOut records the first fault of a JWK.
func (j *jwk) leaveOut(got, want string) {
	if j.unfit == nil {
		j.unfit = &Error{Check: checkJWK, Got: got, Want: want}
	}
}

// isNothing reads a value, and reports whether it is null, "" or [].
func isNothing(r *strictjson.Reader) (bool, error) {
	switch r.Type() {
	case strictjson.NullType:
		return true, r.Null()
	case strictjson.StringType:
		text, err := r.Text()
		return len(text) == 0, err
	case strictjson.ArrayType:
		nothing := true
		err := r.Array(func() error { nothing = false; return r.Skip() })
		return nothing, err
	}
	return false, r.Skip()
}

// maxOperations is how many key_ops a key may have: twice as many as are registered.
const maxOperations = 16

// readOperations reads the array key_ops.
func (j *jwk) readOperations(r *strictjson.Reader) error {
	return r.Array(func() error {
		if len(j.operations) == maxOperations || r.Type() != strictjson.StringType {
			j.leaveOut("key_ops that are more, or no strings", "at most 16 strings")
			return r.Skip()
		}
		operation, err := r.String()
		j.operations = append(j.operations, operation)
		return err
	})
}

// key makes the key of a kty RSA, EC on P-256, P-384 and P-521, or OKP on Ed25519, as [NewKey]
// accepts them. It is bound to its alg, or without one to the usual algorithm of such keys; its key
// ID is its kid, or without one is derived by the digest of the public key.
//
// A use must be sig, and key_ops, if there are any, must contain verify and nothing else but
// sign. Integers and coordinates have exactly one encoding: moduli and exponents without
// leading zeros, coordinates of the curve's full size. Other members, including x5c and x5u, are
// ignored; a known one in a different case is refused.
//
// The errors are "jwk", "jws-key-type", "key-use", [CheckAlgorithm], "key" and [CheckKeyID].
func (j *jwk) key() (*Key, error) {
	if err := cmp.Or(j.unfit, j.checkUse()); err != nil {
		return nil, err
	}
	algorithm, keyType := j.texts["alg"], j.texts["kty"]
	if algorithm != "" && asymmetric(algorithm) == "" {
		return nil, &Error{Check: CheckAlgorithm, Got: algorithm, Want: "RS, PS or ES with 256, 384 or 512, or EdDSA"}
	}
	var public crypto.PublicKey
	var err error
	switch keyType {
	case "RSA":
		public, err = j.rsa()
	case "EC":
		public, err = j.ecdsa()
	case "OKP":
		public, err = j.ed25519()
	case "":
		return nil, &Error{Check: checkJWK, Got: "no kty"}
	default:
		return nil, &Error{Check: checkKeyType, Got: "kty " + keyType, Want: "RSA, EC or OKP"}
	}
	if err != nil {
		return nil, err
	}
	k, err := NewKey(public, KeyOptions{KeyID: j.texts["kid"], Algorithm: Algorithm(algorithm)})
	if own, ok := err.(*Error); ok && own.Check == CheckAlgorithm { //nolint:errorlint // NewKey's own
		// Known, but not for a key of this type: the JWK contradicts itself.
		return nil, &Error{Check: checkJWK, Got: "alg " + own.Got, Want: own.Want}
	}
	return k, err
}

// checkUse honours use and key_ops (RFC 7517, sections 4.2 and 4.3).
func (j *jwk) checkUse() error {
	if use := j.texts["use"]; use != "" && use != "sig" {
		return &Error{Check: checkKeyUse, Got: "use " + use, Want: "sig"}
	}
	for i, operation := range j.operations {
		if slices.Contains(j.operations[:i], operation) {
			return &Error{Check: checkJWK, Got: "key_ops with " + refusal.Text(operation) + " twice", Want: "each operation once"}
		}
		if operation != "verify" && operation != "sign" {
			return &Error{Check: checkKeyUse, Got: "key_ops with " + operation, Want: "verify"}
		}
	}
	if len(j.operations) > 0 && !slices.Contains(j.operations, "verify") {
		return &Error{Check: checkKeyUse, Got: fmt.Sprintf("key_ops %v", j.operations), Want: "verify"}
	}
	return nil
}

// rsa reads the public key of RFC 7518, section 6.3.1.
func (j *jwk) rsa() (crypto.PublicKey, error) {
	modulus, errN := j.integer("n", maxRSABits/8)
	exponent, errE := j.integer("e", 4)
	if err := cmp.Or(errN, errE); err != nil {
		return nil, err
	}
	// If an int has 32 bits, one of 2^31 or more turns negative, and checkRSA refuses it.
	e := int(new(big.Int).SetBytes(exponent).Int64())
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: e}, nil
}

// ecdsa reads the public key of RFC 7518, section 6.2.1.
func (j *jwk) ecdsa() (crypto.PublicKey, error) {
	i := slices.IndexFunc(curves, func(c elliptic.Curve) bool { return c.Params().Name == j.texts["crv"] })
	if i < 0 {
		return nil, j.otherCurve("P-256, P-384 or P-521")
	}
	size := coordinateSize(curves[i])
	x, errX := j.octets("x", size)
	y, errY := j.octets("y", size)
	if err := cmp.Or(errX, errY); err != nil {
		return nil, err
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curves[i], slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, &Error{Check: checkKey, Got: "a point off its curve", Want: "one on " + j.texts["crv"], Err: err}
	}
	return public, nil
}

// ed25519 reads the public key of RFC 8037, section 2.
func (j *jwk) ed25519() (crypto.PublicKey, error) {
	if j.texts["crv"] != "Ed25519" {
		return nil, j.otherCurve("Ed25519")
	}
	x, err := j.octets("x", ed25519.PublicKeySize)
	if err != nil {
		return nil, err
	}
	return ed25519.PublicKey(x), nil
}

// otherCurve is the error for a curve that this package does not support.
func (j *jwk) otherCurve(want string) error {
	if j.texts["crv"] == "" {
		return &Error{Check: checkJWK, Got: "no crv", Want: want}
	}
	return &Error{Check: checkKeyType, Got: "crv " + j.texts["crv"], Want: want}
}

// octets decodes a member of exactly size bytes.
func (j *jwk) octets(name string, size int) ([]byte, error) {
	octets, err := j.decode(name)
	if err == nil && len(octets) != size {
		err = &Error{Check: checkJWK, Got: name + " of " + bytesText(len(octets)), Want: bytesText(size)}
	}
	return octets, err
}

// integer decodes a Base64urlUInt of at most size bytes (RFC 7518, section 2).
func (j *jwk) integer(name string, size int) ([]byte, error) {
	octets, err := j.decode(name)
	switch {
	case err != nil:
	case len(octets) == 0 || octets[0] == 0:
		err = &Error{Check: checkJWK, Got: name + " that is empty or begins with a zero byte", Want: "the shortest encoding of a positive number"}
	case len(octets) > size:
		err = &Error{Check: checkKey, Got: name + " of " + bytesText(len(octets)), Want: "at most " + bytesText(size)}
	}
	return octets, err
}

func (j *jwk) decode(name string) ([]byte, error) {
	octets, err := decodeSegment(nil, []byte(j.texts[name]))
	if err != nil {
		return nil, &Error{Check: checkJWK, Got: name + " that is no base64url", Err: err}
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
	if k.missing() {
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
