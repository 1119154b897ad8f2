package jws_test

import (
	"context"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestCryptoSignerTPM signs tokens with keys that never leave a TPM.
func TestCryptoSignerTPM(t *testing.T) {
	simulator := tpmsim.New(t, tpmsim.Options{})
	ctx := context.Background()
	for kind, algorithms := range map[tpmkey.Algorithm][]jws.Algorithm{
		tpmkey.ECDSAP256: {jws.ES256},
		tpmkey.ECDSAP384: {jws.ES384},
		tpmkey.RSA2048:   {jws.RS256, jws.RS384, jws.PS256},
	} {
		key, err := tpmkey.Create(ctx, simulator, kind, tpmkey.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, algorithm := range algorithms {
			signer, err := jws.NewSigner(key, jws.SignerOptions{Algorithm: algorithm})
			if err != nil {
				t.Fatal(err)
			}
			signature, err := signer.Sign(ctx, []byte("{}"))
			if err != nil {
				t.Errorf("%v, %s: %v", kind, algorithm, err)
				continue
			}
			set, err := jws.NewStaticKeySet(signer.Key())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jws.VerifySignature(ctx, signature.Token([]byte("{}")), set); err != nil {
				t.Errorf("%v, %s: %v", kind, algorithm, err)
			}
		}
		if err := key.Close(); err != nil {
			t.Error(err)
		}
	}
}
