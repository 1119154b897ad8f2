package externalsigner_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/externalsigner"
	"github.com/nodeattest/nodeattest/jws"
)

// newService makes a service with a key in memory. Program external-jwt-signer has keys in files and TPMs.
func newService() (*extsigner.Service, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := jws.NewSigner(private, jws.SignerOptions{KeyID: "key-1", Type: jws.TypeJWT})
	if err != nil {
		return nil, err
	}
	keys, err := jws.NewRotatingSigner(key, jws.RotationConfig{Publish: time.Hour, Retain: 2 * time.Hour})
	if err != nil {
		return nil, err
	}
	return extsigner.NewService(extsigner.ServiceConfig{Issuer: "https://issuer.example", Signer: keys, Keys: keys, RefreshHint: time.Minute})
}

// A signer serves kube-apiserver, here a client of this process's user, and others.
func Example() {
	service, err := newService()
	if err != nil {
		log.Fatal(err)
	}
	server, err := externalsigner.NewServer(externalsigner.ServerConfig{
		Service: service, AllowedUIDs: []uint32{uint32(os.Getuid())}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "signer") // in production /run/external-jwt-signer
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "socket")
	listener, err := externalsigner.Listen(path)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()

	client, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	keys, err := externaljwt.NewExternalJWTSignerClient(client).FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keys.Keys[0].KeyId, keys.RefreshHintSeconds)
	fmt.Println(server.Ready(ctx))
	_ = client.Close()
	cancel()
	fmt.Println(<-ended)

	if err := os.Chmod(folder, 0o770); err != nil {
		log.Fatal(err)
	}
	_, err = externalsigner.Listen(path)
	fmt.Println("a folder that a group can write to:", err != nil)
	// Output:
	// key-1 60
	// <nil>
	// <nil>
	// a folder that a group can write to: true
}
