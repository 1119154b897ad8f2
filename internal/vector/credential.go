package vector

import (
	"crypto/x509"
	"errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
)

// Credential is a challenge on the road of the EK certificate, and the TPM that it
// reaches: an EK whose private key is known, and an AK's Name. Acceptance means that
// the credential opens to Result.Secret.
type Credential struct {
	// Challenge is DER.
	Challenge []byte `json:"challenge"`
	// EK is the EK's private key, PKCS#8.
	EK []byte `json:"ek"`
	// AKName is the Name of the AK that the TPM has loaded.
	AKName []byte `json:"akName"`
}

// open parses the challenge and opens its credential. A secret that does not follow
// from the binding under the environment's challenge keys is an error too.
func (c *Credential) open(e *Environment) (*Result, error) {
	key := forge.Must(x509.ParsePKCS8PrivateKey(c.EK))
	challenge, err := message.ParseChallenge(c.Challenge)
	if err != nil {
		return nil, err
	}
	if challenge.Credential == nil {
		return nil, &brokenVector{errors.New("a challenge without a credential")}
	}
	secret, err := forge.OpenCredential(key, c.AKName, (*attest.Credential)(challenge.Credential))
	if err == nil && !e.gave(challenge, secret) {
		err = errors.New("the credential's secret does not follow from its binding")
	}
	return &Result{Secret: secret}, err
}
