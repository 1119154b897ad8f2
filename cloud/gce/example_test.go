package gce_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// A token for an audience of one's own, outside of a join. Package cloudtest stands in for
// the cloud: on a machine the URL is left out, and keys come from [KeysURL].
func ExampleVerifyToken() {
	ctx := context.Background()
	cloud, err := cloudtest.OpenGCE()
	if err != nil {
		log.Fatal(err)
	}
	server := cloud.Serve(oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: "my-project", InstanceID: 4711, InstanceName: "vm-1"})
	defer server.Close()

	// The machine.
	source, err := gce.NewSource(gce.SourceOptions{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	token, err := source.Token(ctx, "https://example.com/registration/17")
	if err != nil {
		log.Fatal(err)
	}

	// Who wants to know which machine it is.
	keys, err := jws.NewStaticKeySet(cloud.Keys()...)
	if err != nil {
		log.Fatal(err)
	}
	trust := gce.KindConfig{Keys: keys, Projects: []string{"my-project"}}
	details, err := gce.VerifyToken(ctx, token, "https://example.com/registration/17", trust, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(details.Machine(), details.Instance.InstanceName)
	_, err = gce.VerifyToken(ctx, token, "https://example.com/registration/18", trust, time.Now())
	fmt.Println(err)
	// Output:
	// gce:my-project/4711 vm-1
	// gce-audience: got https://example.com/registration/17, want https://example.com/registration/18
}

// The kind, as a control plane configures it: a list of projects is demanded.
func ExampleNewKind() {
	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{JWKSURL: gce.KeysURL, Client: httpClient})
	if err != nil {
		log.Fatal(err)
	}
	_, err = gce.NewKind(gce.KindConfig{Keys: keys})
	fmt.Println(err)
	kind, err := gce.NewKind(gce.KindConfig{Keys: keys, Projects: []string{"my-project"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, road := range kind.Describe().Roads {
		fmt.Println(road.Road, road.Identities[0].Kind, road.Machine == attest.Asserted)
	}
	// Output:
	// configuration: got no Projects, want the IDs of the projects whose machines may join
	// document gce true
}
