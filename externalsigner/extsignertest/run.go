package extsignertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/refusal"
)

// checkLimit is how long one check may take, which makes one or a few calls. kube-apiserver fails a
// TokenRequest after 34 seconds.
const checkLimit = 20 * time.Second

// Run checks a signer of an issuer, with a subtest for each check of [TestSigner]. dial connects to
// the signer; each subtest calls it once and closes the connection. A check that a signer is not
// meant to pass is left out by its name: go test -skip 'TestMySigner/refuses-two-bindings'.
func Run(t *testing.T, issuer string, dial func() (*grpc.ClientConn, error)) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			connection, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if err := c.of(t.Context(), issuer, externaljwt.NewExternalJWTSignerClient(connection), checkLimit); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSigner makes every check of a signer that signs for an issuer, the URL in "iss"
// (--service-account-issuer). The clock of the signer must be that of the caller, within a minute.
//
//   - keys: there are 1 to 256, each RSA with 2048 bits or more, or ECDSA on P-256, P-384 or P-521, in
//     PKIX, no two with one ID of 1 to 1024 bytes and one algorithm; one at least is in the discovery
//     document; the refresh hint is more than 0, and the data timestamp is a time that is not ahead.
//   - metadata: the maximum lifetime of a token is 600 to 2^32 seconds.
//   - signs-…: each kind of bound token of kube-apiserver 1.36 and 1.37 is signed, also 16 at once and with
//     30 KiB of audiences. The header has alg, kid and typ "JWT" alone, the key was published before the token
//     was signed and not excluded from discovery, and the signature, of the algorithm's exact length,
//     verifies over the claims that were sent.
//   - refuses-…: no signature for claims of another issuer, with a claim that kube-apiserver does not
//     write, of a subject other than the bound account, without an end or with a lifetime over that of
//     the metadata, not valid now, or in an encoding that parsers read differently. Unavailable and
//     other codes by which a signer says that it has not decided are no refusals.
//
// The error lists every check that failed, each by its name, and is [refusal.CheckConfig] without an issuer or a
// client. It is nil if all pass. A signer makes some 30 signatures, and a check ends after 20 seconds.
func TestSigner(ctx context.Context, issuer string, client externaljwt.ExternalJWTSignerClient) error {
	switch {
	case issuer == "":
		return refusal.Config("issuer", "", "the issuer's URL")
	case client == nil:
		return refusal.Config("client", "", "a connection to the signer")
	}
	return testSigner(ctx, issuer, client, checkLimit)
}

func testSigner(ctx context.Context, issuer string, client externaljwt.ExternalJWTSignerClient, limit time.Duration) error {
	var failed []error
	for _, c := range checks() {
		if err := c.of(ctx, issuer, client, limit); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("extsignertest: this signer fails %d checks:\n%w", len(failed), errors.Join(failed...))
}

// A check is one demand on a signer. do returns how the signer fails it, or nil.
type check struct {
	name string
	do   func(ctx context.Context, r *remote) error
}

// of makes the check of a signer.
func (c check) of(ctx context.Context, issuer string, client externaljwt.ExternalJWTSignerClient, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.do(ctx, &remote{issuer: issuer, client: client})
}

// checks are all checks, in the order in which they are made.
func checks() []check {
	return slices.Concat([]check{{"keys", checkKeys}, {"metadata", checkMetadata}}, signed(), refused())
}
