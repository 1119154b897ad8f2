package jws

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"math/big"
)

// MarshalJSON returns the key as a JWK, byte for byte as kube-apiserver serves it: use,
// kty, kid, crv, alg and then x and y, or n and e. The zero key is refused with
// [CheckKey].
func (k *Key) MarshalJSON() ([]byte, error) {
	if k == nil || k.public == nil {
		return nil, &Error{Check: CheckKey, Got: "no key"}
	}
	keyType, curve := "RSA", ""
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		keyType, curve = "EC", public.Params().Name
	case ed25519.PublicKey:
		keyType, curve = "OKP", "Ed25519"
	}
	b := append([]byte(`{"use":"sig","kty":"`), keyType...)
	b = appendString(append(b, `","kid":`...), k.keyID)
	if curve != "" {
		b = appendMember(b, "crv", curve)
	}
	b = appendMember(b, "alg", string(k.algorithm))
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		b = appendOctets(b, "n", public.N.Bytes())
		b = appendOctets(b, "e", big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			return nil, &Error{Check: CheckKey, Got: "a point off its curve", Err: err}
		}
		size := coordinateSize(public.Curve)
		b = appendOctets(b, "x", point[1:1+size])
		b = appendOctets(b, "y", point[1+size:])
	case ed25519.PublicKey:
		b = appendOctets(b, "x", public)
	}
	return append(b, '}'), nil
}

// appendMember appends a member whose name and value need no escapes.
func appendMember(b []byte, name, value string) []byte {
	b = append(append(b, `,"`...), name...)
	b = append(append(b, `":"`...), value...)
	return append(b, '"')
}

// appendOctets appends a member whose value is bytes in base64url.
func appendOctets(b []byte, name string, octets []byte) []byte {
	return appendMember(b, name, encoding.EncodeToString(octets))
}
