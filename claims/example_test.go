package claims_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
)

const exampleIssuer, exampleAudience = "https://kubernetes.default.svc", "https://identity.example"

var exampleTime = time.Unix(1700000000, 0)

func exampleClock() time.Time { return exampleTime }

// exampleSigner makes a signer with a new key.
func exampleSigner() *jws.CryptoSigner {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{KeyID: "key-1"})
	if err != nil {
		log.Fatal(err)
	}
	return signer
}

// exampleObjects are one pod on one node.
func exampleObjects() *claims.MemoryObjects {
	objects := &claims.MemoryObjects{}
	objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "sa-uid"})
	objects.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", UID: "pod-uid",
		ServiceAccountName: "cart", NodeName: "node-a",
	})
	objects.Put("nodes", claims.Object{Name: "node-a", UID: "node-uid"})
	return objects
}

// examplePodToken issues a token to the pod cart-0 on node-a.
func examplePodToken(objects claims.Objects) (token string, keys *jws.StaticKeySet) {
	signer := exampleSigner()
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: exampleIssuer, APIAudiences: []string{exampleIssuer},
		Signer: signer, Objects: objects, Now: exampleClock,
		NewID: func() string { return "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab" },
	})
	if err != nil {
		log.Fatal(err)
	}
	issued, err := issuer.Issue(context.Background(), &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{exampleAudience},
		BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "cart-0"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if keys, err = jws.NewStaticKeySet(signer.Key()); err != nil {
		log.Fatal(err)
	}
	return issued.Token.Reveal(), keys
}

// Claims are read strictly: a time in quotes is a time to other readers, and none here.
func ExampleParse() {
	c, err := claims.Parse([]byte(`{"sub":"system:serviceaccount:shop:cart","aud":["vault"],"exp":1700007200}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Subject, c.Audiences, c.Expiry.Time().Format(time.RFC3339), c.NotBefore.Present)

	_, err = claims.Parse([]byte(`{"exp":"1700007200"}`))
	fmt.Println(errors.Is(err, claims.CheckType))
	// Output:
	// system:serviceaccount:shop:cart [vault] 2023-11-15T00:13:20Z false
	// true
}

// A service that exchanges a token for something accepts it once.
func ExampleValidator_Validate() {
	objects := exampleObjects()
	token, keys := examplePodToken(objects)
	replay, err := claims.NewMemoryReplayCache(claims.MemoryReplayOptions{Now: exampleClock})
	if err != nil {
		log.Fatal(err)
	}
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{exampleIssuer: keys}, Audiences: []string{exampleAudience},
		Objects: objects, Replay: replay, Now: exampleClock,
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		result, err := validator.Validate(context.Background(), token)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(result.Username())
	}
	// Output:
	// system:serviceaccount:shop:cart
	// token-replay: got ID a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab, presented before or dropped since, want a token that was not presented before
}

// What package attest verified, and its registry, in the words of this package.
func ExampleNodeCheck() {
	objects := exampleObjects()
	objects.Put("nodes", claims.Object{Name: "node-a", UID: "node-uid", ProviderID: "gce://shop/zone/node-a"})
	token, keys := examplePodToken(objects)

	// Stands in for what (*attest.Verifier).Verify returned at the join, and for the
	// registry that membership.FirstUse wrote to.
	verified := &attest.Result{
		NodeName: "node-a", Machine: "ek:sha256:ab12",
		Granted: csr.Grant{ProviderID: "gce://shop/zone/node-a"},
	}
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}, membership.RegistryOptions{Now: exampleClock})
	if err != nil {
		log.Fatal(err)
	}
	record, err := registry.Reserve(context.Background(), membership.Claim{
		NodeName: "node-a", Machine: verified.Machine, MachineUID: "6f2b", ProviderID: "gce://shop/zone/node-a",
	}, exampleTime.Add(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := registry.Bind(context.Background(), record, exampleTime.Add(time.Hour), nil); err != nil {
		log.Fatal(err)
	}

	check := claims.NodeCheck{
		FindMachine: func(ctx context.Context, nodeName string) (*claims.RegisteredMachine, error) {
			record, err := registry.Lookup(ctx, nodeName)
			switch {
			case err != nil:
				return nil, err
			case record == nil || record.State != membership.StateBound: // a reservation is not enough
				return nil, claims.ErrNotFound
			}
			return &claims.RegisteredMachine{Identity: string(record.Machine), ProviderID: record.ProviderID}, nil
		},
	}
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{exampleIssuer: keys}, Audiences: []string{exampleAudience},
		Objects: objects, InsecureAllowReplay: true, Node: check, Now: exampleClock,
	})
	if err != nil {
		log.Fatal(err)
	}
	node := &claims.AttestedNode{
		Name:       verified.NodeName,
		ProviderID: verified.Granted.ProviderID, // never ClaimedProviderID
		Machine:    string(verified.Machine),
	}
	_, facts, err := validator.ValidateOnNode(context.Background(), token, node)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(facts.Facts)

	node.Name = "node-b" // another attested node has got hold of the token
	_, _, err = validator.ValidateOnNode(context.Background(), token, node)
	fmt.Println(err)
	// Output:
	// node-name,node-uid,certificate-provider-id,registered-provider-id,registered-machine
	// node-name: got a token of node node-a, want node node-b
}

// A service that serves a workload only over a connection that its own node's certificate
// opened. The server's configuration is the other half.
func ExampleNewHandler() {
	objects := exampleObjects()
	token, keys := examplePodToken(objects)
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{exampleIssuer: keys}, Audiences: []string{exampleAudience},
		Objects: objects, InsecureAllowReplay: true, Now: exampleClock,
		Node: claims.NodeCheck{FindMachine: func(context.Context, string) (*claims.RegisteredMachine, error) { return nil, claims.ErrNotFound }},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintln(w, "hello,", who.Result.Username())
	}), claims.HandlerOptions{
		// The stored csr.Issued.Record of the node, found by its CredentialID.
		FindRecord: func(_ context.Context, nodeName, credentialID string) (*claims.CertificateRecord, error) {
			return nil, claims.ErrNotFound
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = &http.Server{Handler: handler, TLSConfig: &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  x509.NewCertPool(), // with the CA that signs for attested nodes, and no other

		SessionTicketsDisabled: true, // a ticket is good without the node's key
	}}

	request := httptest.NewRequest(http.MethodGet, "https://identity.example/", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	request.TLS = &tls.ConnectionState{} // no client certificate
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 403 refused: node-certificate
}

// A service that has the issuer's keys and no access to the API server: it accepts a token
// until its end. The keys are a [jws.RemoteKeySet] of the issuer; for one that only the
// cluster serves, see the example of [jws.RemoteConfig].
func ExampleNewValidator() {
	token, keys := examplePodToken(exampleObjects())
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{exampleIssuer: keys}, Audiences: []string{exampleAudience},
		InsecureSkipObjects: true, // a deleted pod's token is good until its end
		MaxLifetime:         time.Hour,
		InsecureAllowReplay: true, // each request comes with its token
		Now:                 exampleClock,
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := validator.Validate(context.Background(), token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Username(), "in", result.Claims.Kubernetes.Pod.Name)
	// Output: system:serviceaccount:shop:cart in cart-0
}
