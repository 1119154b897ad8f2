package bootstraptoken_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
)

// provider keeps the Secrets of its machines' tokens in a cluster, here in a map by name.
type provider struct {
	secrets map[string]*bootstraptoken.Object
}

// create makes the token for the boot data of a machine that is to be this node, and of no other.
func (p provider) create(nodeName string, now time.Time) (bootstraptoken.Token, error) {
	made, err := bootstraptoken.Create(bootstraptoken.CreateOptions{
		Description: "boot data of " + nodeName,
		TTL:         15 * time.Minute,
		Groups:      []string{csr.TokenGroup(nodeName)},
	}, now)
	if err != nil {
		return bootstraptoken.Token{}, err
	}
	return made.Token, p.store(made)
}

func (p provider) store(s *bootstraptoken.Secret) error {
	object, err := s.Object()
	if err == nil {
		p.secrets[object.Name] = object
	}
	return err
}

// renew looks after the token in a machine's boot data, and says when to look again; the zero time
// means never.
func (p provider) renew(tokenID string, joined bool, now time.Time) (next time.Time, err error) {
	state := bootstraptoken.RenewalState{
		Owner: bootstraptoken.OwnerMachine, KubeletAuthentication: true, Joined: joined, TTL: 15 * time.Minute,
	}
	var stored *bootstraptoken.Secret
	if object, ok := p.secrets[bootstraptoken.SecretName(tokenID)]; ok {
		if stored, err = bootstraptoken.ParseSecretUnchecked(object); err != nil {
			return time.Time{}, err
		}
		state.Exists, state.Expiration = true, stored.Expiration
	}
	renewal, err := bootstraptoken.Renew(state, now)
	if err != nil {
		return time.Time{}, err
	}
	switch renewal.Action {
	case bootstraptoken.RenewalExtend:
		stored.Expiration = renewal.Expiration
		err = p.store(stored)
	case bootstraptoken.RenewalLost:
		err = errors.New("the token in the boot data is gone: the machine cannot join any more")
	}
	return renewal.Next, err
}

// sweep deletes the Secrets of the tokens that have expired.
func (p provider) sweep(now time.Time) error {
	var objects []*bootstraptoken.Object
	for _, object := range p.secrets {
		objects = append(objects, object)
	}
	found, err := bootstraptoken.Sweep(objects, now)
	if err != nil {
		return err
	}
	for _, expired := range found.Delete { // in a cluster: with its UID and ResourceVersion as preconditions
		delete(p.secrets, expired.Name)
	}
	return nil
}

// A provider of machines, such as one of the Cluster API, gives each machine a token of its own. While
// the machine has not joined, its token is extended; once it has, the token runs out.
func Example_provider() {
	p := provider{map[string]*bootstraptoken.Object{}}
	token, err := p.create("node-1", noon)
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range []struct {
		minutes int
		joined  bool
	}{{0, false}, {5, false}, {10, true}} {
		now := noon.Add(time.Duration(step.minutes) * time.Minute)
		next, err := p.renew(token.ID(), step.joined, now)
		if err != nil {
			log.Fatal(err)
		}
		stored, err := bootstraptoken.ParseSecretUnchecked(p.secrets[bootstraptoken.SecretName(token.ID())])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: until %s, look again: %t\n", now.Format(time.TimeOnly), stored.Expiration.Format(time.TimeOnly), !next.IsZero())
	}
	if err := p.sweep(noon.Add(20 * time.Minute)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(p.secrets), "tokens")
	// Output:
	// 12:00:00: until 12:15:00, look again: true
	// 12:05:00: until 12:20:00, look again: true
	// 12:10:00: until 12:20:00, look again: false
	// 0 tokens
}

// tokenUser says who sent a request to a server that authenticates bootstrap tokens itself. The error
// holds no token; one that is refusal.ErrRetry says that the Secret could not be read.
func tokenUser(get bootstraptoken.SecretGetter, r *http.Request, now time.Time) (csr.User, error) {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, err := bootstraptoken.Authenticate(r.Context(), bearer, get, now)
	if err != nil {
		return csr.User{}, err
	}
	return csr.User{Username: user.Name, Groups: append(user.Groups, csr.AuthenticatedGroup)}, nil
}

// A server of one's own asks who the bearer of a token is, before it looks at the request. This token is
// for node-1 alone.
func ExampleAuthenticate_server() {
	p := provider{map[string]*bootstraptoken.Object{}}
	token, err := p.create("node-1", noon)
	if err != nil {
		log.Fatal(err)
	}
	get := func(_ context.Context, _, name string) (*bootstraptoken.Object, error) {
		if object, ok := p.secrets[name]; ok {
			return object, nil
		}
		return nil, bootstraptoken.ErrNotFound
	}
	request := httptest.NewRequest(http.MethodPost, "https://plane.example/", nil)
	_, err = tokenUser(get, request, noon)
	fmt.Println(err)

	request.Header.Set("Authorization", "Bearer "+token.Reveal())
	user, err := tokenUser(get, request, noon)
	if err != nil {
		log.Fatal(err)
	}
	requester, err := user.Requester()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(requester.Class == csr.RequesterBootstrap, requester.NodeName)
	// Output:
	// bootstrap-token: got 0 bytes, want [a-z0-9]{6}.[a-z0-9]{16}, as kubeadm token create prints
	// true node-1
}
