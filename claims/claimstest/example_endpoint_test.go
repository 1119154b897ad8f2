package claimstest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
	"github.com/nodeattest/nodeattest/refusal"
)

// A service that fetches the issuer's keys over HTTPS: the discovery document and key set are
// served by package jwstest.
func ExampleOptions_endpoint() {
	ctx := context.Background()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	public, err := jws.NewKey(key.Public(), jws.KeyOptions{})
	if err != nil {
		log.Fatal(err)
	}
	server, err := jwstest.OpenServer(public)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	cluster, err := claimstest.Open(claimstest.Options{Issuer: server.Issuer(), Key: key})
	if err != nil {
		log.Fatal(err)
	}
	token := podToken(cluster, "")

	for _, fault := range []jwstest.Fault{jwstest.Fail, 0} {
		server.SetFault(fault)
		keys, err := jws.NewRemoteKeySet(server.RemoteConfig())
		if err != nil {
			log.Fatal(err)
		}
		config := cluster.ValidatorConfig()
		config.Issuers = map[string]jws.KeySet{cluster.Issuer(): keys}
		validator, err := claims.NewValidator(config)
		if err != nil {
			log.Fatal(err)
		}
		result, err := validator.Validate(ctx, token)
		if err != nil {
			fmt.Println("try again:", errors.Is(err, refusal.ErrRetry))
			continue
		}
		fmt.Println(result.Username())
	}
	// Output:
	// try again: true
	// system:serviceaccount:shop:cart
}
