package extsignertest_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/externalsigner/extsignertest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
)

// obedient signs whatever it is asked to sign, as a signing service without a policy does.
type obedient struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	signer jws.KeySigner
}

func (o obedient) Sign(ctx context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	payload, err := base64.RawURLEncoding.DecodeString(r.GetClaims())
	if err != nil {
		return nil, err
	}
	signed, err := o.signer.Sign(ctx, payload)
	if err != nil {
		return nil, err
	}
	return &externaljwt.SignJWTResponse{Header: signed.Header, Signature: signed.Value}, nil
}

func (o obedient) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	der, err := x509.MarshalPKIXPublicKey(o.signer.Key().Public())
	if err != nil {
		return nil, err
	}
	return &externaljwt.FetchKeysResponse{
		Keys:          []*externaljwt.Key{{KeyId: o.signer.Key().KeyID(), Key: der}},
		DataTimestamp: timestamppb.New(time.Now()), RefreshHintSeconds: 3600,
	}, nil
}

func (obedient) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: 3607}, nil
}

// A signer that keeps its key safe, in whatever device, but signs all that it is sent is as good as a copy of the
// key to a caller who reaches its socket.
func ExampleTestSigner() {
	signer, err := jwstest.OpenSigner(nil, jws.SignerOptions{Type: jws.TypeJWT})
	if err != nil {
		log.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(server, obedient{signer: signer})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	connection, err := grpc.NewClient("passthrough:signer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()

	err = extsignertest.TestSigner(context.Background(), "https://issuer.example", externaljwt.NewExternalJWTSignerClient(connection))
	for line := range strings.Lines(err.Error()) {
		name, _, _ := strings.Cut(line, ":")
		fmt.Println(name)
		if name == "refuses-subject-of-a-node" {
			break
		}
	}
	// Output:
	// extsignertest
	// refuses-foreign-issuer
	// refuses-issuer-and-a-slash
	// refuses-no-issuer
	// refuses-subject-of-another-account
	// refuses-subject-of-a-user
	// refuses-subject-of-a-node
}
