package jwstest_test

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A service verifies tokens with the keys of an issuer, which then hangs. In a test, NewServer(t,
// keys...) closes its server.
func Example() {
	ctx := context.Background()
	signer := must(jwstest.OpenSigner(nil, jws.SignerOptions{}))
	server := must(jwstest.OpenServer(signer.Key()))
	defer func() { _ = server.Close() }()
	token := must(signer.Token(ctx, []byte(`{"sub":"system:serviceaccount:shop:cart"}`)))

	keys := must(jws.NewRemoteKeySet(server.RemoteConfig()))
	signed, err := jws.VerifySignature(ctx, token, keys)
	fmt.Printf("%s, %v\n", signed.Payload, err)

	if err := server.SetFault(jwstest.Fail); err != nil {
		log.Fatal(err)
	}
	_, err = jws.VerifySignature(ctx, token, keys)
	fmt.Println("with held keys:", err)
	_, err = jws.VerifySignature(ctx, token, must(jws.NewRemoteKeySet(server.RemoteConfig())))
	fmt.Println("without keys, try again:", errors.Is(err, refusal.ErrRetry))
	// Output:
	// {"sub":"system:serviceaccount:shop:cart"}, <nil>
	// with held keys: <nil>
	// without keys, try again: true
}

// A signer whose key is in a simulated TPM.
func ExampleNewSigner_tpm() {
	ctx := context.Background()
	machine := must(tpmsim.Open(tpmsim.Options{}))
	defer machine.Close()
	key := must(tpmkey.Create(ctx, machine, tpmkey.ECDSAP256, tpmkey.Options{}))
	defer key.Close()

	signer := must(jwstest.OpenSigner(key, jws.SignerOptions{})) // in a test: NewSigner(t, key, …)
	fmt.Println(signer.Key().Algorithm(), jwstest.TestSigner(ctx, signer))
	// Output: ES256 <nil>
}

// A verifier of one's own that tidies tokens up first, and so accepts several texts for one token.
func ExampleSigner_Forgeries() {
	ctx := context.Background()
	signer := must(jwstest.OpenSigner(nil, jws.SignerOptions{}))
	keys := must(jws.NewStaticKeySet(signer.Key()))
	verify := func(token string) error {
		_, err := jws.VerifySignature(ctx, strings.TrimRight(token, "=.\n"), keys)
		return err
	}
	for _, forgery := range must(signer.Forgeries([]byte(`{"sub":"a"}`))) {
		if verify(forgery.Token) == nil {
			fmt.Println("accepted:", forgery.Name, "which jws refuses by", forgery.Check)
		}
	}
	// Output:
	// accepted: signature-padded which jws refuses by base64url
	// accepted: signature-line-end which jws refuses by base64url
	// accepted: four-segments which jws refuses by form
}

// A signer of one's own, here the client of a signing service, which returns the context's error as it
// is: its caller takes that for a refusal.
func ExampleTestSigner() {
	fmt.Println(jwstest.TestSigner(context.Background(), service{must(jwstest.OpenSigner(nil, jws.SignerOptions{}))}))
	// Output:
	// jwstest: this signer does not do as its interface says:
	// a context that has ended: want one in which errors.Is finds refusal.ErrRetry, got context canceled
}

// service stands for the client of a signing service.
type service struct{ *jwstest.Signer }

func (s service) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.Signer.Sign(ctx, payload)
}

// A key set of one's own that is a map, in which no key has the empty ID: a token without a key ID
// finds none.
func ExampleTestKeySet() {
	signer := must(jwstest.OpenSigner(nil, jws.SignerOptions{KeyID: "2026"}))
	fmt.Println(jwstest.TestKeySet(context.Background(), byName{"2026": signer.Key().Public()}, signer.Key()))
	// Output:
	// jwstest: this key set does not do as its interface says:
	// all keys: got 0 keys, want "2026" for ES256 among them
	// calls at once: got 0 keys, want "2026" for ES256 among them
}

// byName are public keys by key ID.
type byName map[string]crypto.PublicKey

func (s byName) Keys(_ context.Context, keyID string) ([]*jws.Key, error) {
	public, ok := s[keyID]
	if !ok {
		return nil, nil
	}
	key, err := jws.NewKey(public, jws.KeyOptions{KeyID: keyID})
	return []*jws.Key{key}, err
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
