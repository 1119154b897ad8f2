package jws

// Placeholders until the end of this file's making.

// MaxJWKSize is the length in bytes of the longest JWK that [ParseJWK] reads.
const MaxJWKSize = 64 << 10

// ParseJWK reads a public key.
func ParseJWK(data []byte) (*Key, error) { return nil, &Error{Check: CheckJWK} }

// MarshalJSON gives the key as a JWK.
func (k *Key) MarshalJSON() ([]byte, error) { return nil, &Error{Check: CheckJWK} }

// ParseJWKS reads a set of public keys.
func ParseJWKS(data []byte) ([]*Key, error) { return nil, &Error{Check: CheckKeySet} }

// MarshalJWKS writes a set of public keys.
func MarshalJWKS(keys []*Key) ([]byte, error) { return nil, &Error{Check: CheckKeySet} }

// ParsePEM reads public keys.
func ParsePEM(data []byte) ([]*Key, error) { return nil, &Error{Check: CheckPEM} }
