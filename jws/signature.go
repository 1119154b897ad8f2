package jws

import "context"

// Signer signs payloads. Algorithm, key ID and signature come back from one call, so
// that no rotation of keys can come between them. Its methods are safe for concurrent
// use.
type Signer interface {
	// Sign signs a token with this payload, at most [MaxPayloadSize] bytes. An error in
	// which errors.Is finds [ErrRetry] means that the signer did not answer.
	Sign(ctx context.Context, payload []byte) (*Signature, error)
}

// Signature is what a [Signer] returns for a payload.
type Signature struct {
	// Header is the header as it was signed, in base64url.
	Header string
	// Value is the signature in base64url.
	Value string
	// Key is the public key with which the token verifies.
	Key *Key
}

// Token puts the token in compact form together (RFC 7515, section 7.1): header, payload
// and signature. The payload must be the one that was signed.
func (s *Signature) Token(payload []byte) string {
	token := make([]byte, 0, len(s.Header)+encoding.EncodedLen(len(payload))+len(s.Value)+2)
	token = append(token, s.Header...)
	token = append(token, '.')
	token = encoding.AppendEncode(token, payload)
	token = append(token, '.')
	return string(append(token, s.Value...))
}
