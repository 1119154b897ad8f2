package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/controller"
)

// requester is a user with a credential.
type requester struct {
	client.Client
	// user is the user that kube-apiserver states in requests that are filed with the credential.
	user csr.User
}

// filed compares the user of a stored request with the requester.
func (r *requester) filed(t *testing.T, object *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	if diff := gocmp.Diff(r.user, controller.Request(object).User, cmpopts.SortSlices(cmp.Less[string]), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("request %s: the credential's user (-) and kube-apiserver's (+):\n%s", object.Name, diff)
	}
}

const serviceAccountPrefix = "system:serviceaccount:"

// as returns the requester that authenticates as a user: with a bootstrap token, with a service account's
// token or, where neither gives such a user, with a certificate of the cluster's CA.
func (l *liars) as(t *testing.T, user csr.User) *requester {
	t.Helper()
	key := fmt.Sprint(user.Username, user.Groups)
	if l.requesters[key] == nil {
		_, ofToken := l.extraGroups(user)
		switch {
		case ofToken:
			l.requesters[key] = &requester{l.client(t, l.bearer(t, strings.TrimPrefix(user.Username, csr.BootstrapUserPrefix))), user}
		case strings.HasPrefix(user.Username, serviceAccountPrefix):
			l.requesters[key] = l.account(t, user.Username)
		default:
			l.requesters[key] = l.certified(t, user)
		}
	}
	return l.requesters[key]
}

// extraGroups returns the groups that a bootstrap token's Secret gives a user, and whether there
// can be such a token.
func (l *liars) extraGroups(user csr.User) (extra string, possible bool) {
	id, ok := strings.CutPrefix(user.Username, csr.BootstrapUserPrefix)
	if !ok || len(id) != 6 || !slices.Contains(user.Groups, csr.BootstrappersGroup) {
		return "", false
	}
	var own []string
	for _, group := range user.Groups {
		switch {
		case strings.HasPrefix(group, csr.BootstrappersGroup+":"):
			own = append(own, group)
		case group != csr.BootstrappersGroup && group != csr.AuthenticatedGroup:
			return "", false
		}
	}
	return strings.Join(own, ","), true
}

// tokenUser returns the name of the user that has these groups: where bootstrap tokens give them, each set of
// groups has a token of its own.
func (l *liars) tokenUser(t *testing.T, username string, groups []string) string {
	t.Helper()
	extra, ok := l.extraGroups(csr.User{Username: username, Groups: groups})
	if !ok {
		return username
	}
	if l.tokens[extra] == "" {
		id := fmt.Sprintf("extra%d", len(l.tokens))
		l.makeToken(t, id, extra)
		l.tokens[extra] = id
	}
	return csr.BootstrapUserPrefix + l.tokens[extra]
}

// certified returns a requester with a new certificate of the cluster's CA.
func (l *liars) certified(t *testing.T, user csr.User) *requester {
	t.Helper()
	groups := slices.DeleteFunc(slices.Clone(user.Groups), func(g string) bool { return g == csr.AuthenticatedGroup })
	config := l.user(t, user.Username, groups...)
	block, _ := pem.Decode(config.CertData)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &requester{l.client(t, config), certificateUser(leaf)}
}

// comesBack makes a certificate the credential of the user that it names.
func (l *liars) comesBack(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	user := certificateUser(leaf)
	l.requesters[fmt.Sprint(user.Username, user.Groups)] = &requester{
		l.withCertificate(t, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: l.bench.TLS, Leaf: leaf}), user}
}

// certificateUser returns the user that kube-apiserver states for a client certificate.
func certificateUser(leaf *x509.Certificate) csr.User {
	return csr.User{Username: leaf.Subject.CommonName, Groups: append(slices.Clone(leaf.Subject.Organization), csr.AuthenticatedGroup),
		Extra: map[string][]string{csr.ExtraCredentialID: {csr.CredentialID(leaf)}}}
}

// account returns a requester with a service account's token.
func (l *liars) account(t *testing.T, username string) *requester {
	t.Helper()
	namespace, name, _ := strings.Cut(strings.TrimPrefix(username, serviceAccountPrefix), ":")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := l.admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	token := l.serviceAccountToken(t, namespace, name)
	parsed, err := jws.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	stated, err := claims.Parse(parsed.UnverifiedPayload())
	if err != nil {
		t.Fatal(err)
	}
	config := l.bearer(t, "")
	config.BearerToken = token
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, csr.AuthenticatedGroup}
	return &requester{l.client(t, config), csr.User{Username: username, UID: string(account.UID), Groups: groups,
		Extra: map[string][]string{csr.ExtraCredentialID: {stated.CredentialID()}}}}
}

// impersonated returns a user whom an administrator impersonates: kube-apiserver states no credential.
func (l *liars) impersonated(t *testing.T, user csr.User) *requester {
	t.Helper()
	config := l.user(t, "admin", "system:masters")
	config.Impersonate = rest.ImpersonationConfig{UserName: user.Username, Groups: user.Groups}
	return &requester{l.client(t, config), user}
}
