package bootstraptoken_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
)

// noon is the present of the examples.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// exampleSecret is a token Secret as an administrator makes it, with a token that is known.
func exampleSecret() *bootstraptoken.Secret {
	token, err := bootstraptoken.Parse("abcdef.0123456789abcdef")
	if err != nil {
		log.Fatal(err)
	}
	secret, err := bootstraptoken.Create(bootstraptoken.CreateOptions{Token: token, Description: "rack 7", TTL: time.Hour}, noon)
	if err != nil {
		log.Fatal(err)
	}
	return secret
}

func ExampleParse() {
	token, err := bootstraptoken.Parse("abcdef.0123456789abcdef")
	fmt.Println(token, err)
	_, err = bootstraptoken.Parse("ABCDEF.0123456789abcdef")
	fmt.Println(errors.Is(err, bootstraptoken.Check("bootstrap-token")))
	// Output:
	// abcdef.[secret] <nil>
	// true
}

func ExampleGenerate() {
	token := bootstraptoken.Generate()
	fmt.Println(len(token.ID()), len(token.Reveal()))
	// Output: 6 23
}

func ExampleCreate() {
	secret, err := bootstraptoken.Create(bootstraptoken.CreateOptions{}, noon) // as `kubeadm token create`
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(secret.Expiration.Format(time.RFC3339), secret.Usages, secret.Groups)
	// Output: 2026-11-22T12:00:00Z {true true} [system:bootstrappers:kubeadm:default-node-token]
}

func ExampleObject_RevealYAML() {
	object, err := exampleSecret().Object()
	if err != nil {
		log.Fatal(err)
	}
	manifest, err := object.RevealYAML()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", manifest)
	// Output:
	// apiVersion: v1
	// data:
	//   auth-extra-groups: c3lzdGVtOmJvb3RzdHJhcHBlcnM6a3ViZWFkbTpkZWZhdWx0LW5vZGUtdG9rZW4=
	//   description: cmFjayA3
	//   expiration: MjAyNi0xMS0yMVQxMzowMDowMFo=
	//   token-id: YWJjZGVm
	//   token-secret: MDEyMzQ1Njc4OWFiY2RlZg==
	//   usage-bootstrap-authentication: dHJ1ZQ==
	//   usage-bootstrap-signing: dHJ1ZQ==
	// kind: Secret
	// metadata:
	//   name: bootstrap-token-abcdef
	//   namespace: kube-system
	// type: bootstrap.kubernetes.io/token
}

func ExampleParseSecretUnchecked() {
	object := &bootstraptoken.Object{
		Namespace: "kube-system", Name: "bootstrap-token-07401b", Type: "bootstrap.kubernetes.io/token",
		Data: secret.New(map[string][]byte{ // of a Secret that the API server returned
			"token-id": []byte("07401b"), "token-secret": []byte("f395accd246ae52d"), "usage-bootstrap-authentication": []byte("True"),
		}),
	}
	fmt.Println(object)
	_, err := bootstraptoken.ParseSecretUnchecked(object)
	fmt.Println(err)
	// Output:
	// Secret "bootstrap-token-07401b" in "kube-system" of type "bootstrap.kubernetes.io/token"
	// usage: got usage-bootstrap-authentication: "True", want "true" or "false"
}

func ExampleAuthenticate() {
	object, err := exampleSecret().Object()
	if err != nil {
		log.Fatal(err)
	}
	secrets := map[string]*bootstraptoken.Object{object.Name: object}
	get := func(_ context.Context, _, name string) (*bootstraptoken.Object, error) {
		if o, ok := secrets[name]; ok {
			return o, nil
		}
		return nil, bootstraptoken.ErrNotFound
	}
	ctx := context.Background()

	user, err := bootstraptoken.Authenticate(ctx, "abcdef.0123456789abcdef", get, noon)
	fmt.Println(user.Name, user.Groups, err)
	_, err = bootstraptoken.Authenticate(ctx, "abcdef.ffffffffffffffff", get, noon)
	fmt.Println(err)
	_, err = bootstraptoken.Authenticate(ctx, "abcdef.0123456789abcdef", get, noon.Add(time.Hour))
	fmt.Println(err)
	// Output:
	// system:bootstrap:abcdef [system:bootstrappers system:bootstrappers:kubeadm:default-node-token] <nil>
	// credential: got a token that is not known, want the ID and the secret of a token Secret
	// bootstrap-token-expired: got 2026-11-21T13:00:00Z, want a time before 2026-11-21T13:00:00Z
}

func ExampleSweep() {
	object, err := exampleSecret().Object()
	if err != nil {
		log.Fatal(err)
	}
	for _, now := range []time.Time{noon.Add(30 * time.Minute), noon.Add(time.Hour)} {
		found, err := bootstraptoken.Sweep([]*bootstraptoken.Object{object}, now)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range found.Delete {
			fmt.Println("delete", d.Name)
		}
		fmt.Println("look again:", !found.Next.IsZero())
	}
	// Output:
	// look again: true
	// delete bootstrap-token-abcdef
	// look again: false
}

func ExampleRenew() {
	renewal, err := bootstraptoken.Renew(bootstraptoken.RenewalState{
		Owner:                 bootstraptoken.OwnerMachinePool,
		KubeletAuthentication: true,
		Joined:                true,
		Exists:                true,
		Expiration:            noon.Add(10 * time.Minute),
		TTL:                   15 * time.Minute,
	}, noon)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(renewal.Action, renewal.Expiration.Format(time.TimeOnly), renewal.Next.Format(time.TimeOnly))
	// Output: extend 12:15:00 12:05:00
}

func ExampleView_Table() {
	table := bootstraptoken.View{}.Table([]*bootstraptoken.Secret{exampleSecret()}, noon)
	for line := range strings.Lines(table) {
		fmt.Println(strings.Join(strings.Fields(line), " "))
	}
	// Output:
	// TOKEN TTL EXPIRES USAGES DESCRIPTION EXTRA GROUPS
	// abcdef.[secret] 1h 2026-11-21T13:00:00Z authentication,signing rack 7 system:bootstrappers:kubeadm:default-node-token
}
