package kubernetes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/bootstraptoken/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authenticator/token/bootstrap"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// stricter are the checks by which we refuse what Kubernetes takes.
var stricter = []bootstraptoken.Check{
	bootstraptoken.Check("bootstrap-token-expiration"), // a spelling that time.Parse takes and RFC 3339 does not, or an empty one
	bootstraptoken.Check("usage"),                      // neither "true" nor "false" nor empty, in the other usage
	bootstraptoken.Check("description"),
	bootstraptoken.Check("unknown-key"),
}

// looserKubeadm are the checks by which we refuse Secrets that kubeadm lists.
var looserKubeadm = []bootstraptoken.Check{
	bootstraptoken.Check("namespace"), bootstraptoken.Check("deleted"), bootstraptoken.Check("type"), bootstraptoken.Check("auth-extra-groups"),
}

// looserSigner are the checks by which we refuse Secrets that the signer signs with. It knows
// no group and no deletion, and every secret that is not empty.
var looserSigner = []bootstraptoken.Check{bootstraptoken.Check("deleted"), bootstraptoken.Check("token-secret"), bootstraptoken.Check("auth-extra-groups")}

func oneOf(err error, lists ...[]bootstraptoken.Check) bool {
	return slices.ContainsFunc(slices.Concat(lists...), func(c bootstraptoken.Check) bool { return errors.Is(err, c) })
}

// lister has one Secret, in the namespace kube-system.
type lister struct {
	corev1listers.SecretNamespaceLister
	secret *v1.Secret
}

func (l lister) Get(name string) (*v1.Secret, error) {
	if l.secret.Namespace != "kube-system" || l.secret.Name != name {
		return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
	}
	return l.secret, nil
}

func getter(o *bootstraptoken.Object) bootstraptoken.SecretGetter {
	return func(_ context.Context, namespace, name string) (*bootstraptoken.Object, error) {
		if o.Namespace != namespace || o.Name != name {
			return nil, bootstraptoken.ErrNotFound
		}
		return o, nil
	}
}

// compare runs every reader of Kubernetes over a Secret, and ours.
func compare(t *testing.T, o *bootstraptoken.Object, bearer string) (user, decoded bool) {
	t.Helper()
	now, secret := time.Now(), apiSecret(o)
	response, ok, err := bootstrap.NewTokenAuthenticator(lister{secret: secret}).AuthenticateToken(t.Context(), bearer)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, u *bootstraptoken.User, err error) {
		if (err == nil) != ok || ok && (u.Name != response.User.GetName() || !slices.Equal(u.Groups, response.User.GetGroups())) {
			t.Errorf("%s: Kubernetes %v %v, ours %v, %v: bearer %q, %v", what, ok, response, u, err, bearer, o.Data.Reveal())
		}
	}
	u, err := bootstraptoken.Authenticate(t.Context(), bearer, getter(o), now)
	if err == nil || !ok || !oneOf(err, stricter) {
		same("Authenticate", u, err)
	}
	user = err == nil
	compareSweep(t, o, now)
	compareSigner(t, o, now)
	return user, compareKubeadm(t, o)
}

func compareKubeadm(t *testing.T, o *bootstraptoken.Object) bool {
	t.Helper()
	theirs, theirErr := kubeadm.BootstrapTokenFromSecret(apiSecret(o))
	s, err := bootstraptoken.ParseSecretUnchecked(o)
	if err != nil {
		if theirErr == nil && !oneOf(err, stricter, looserKubeadm) {
			t.Errorf("ParseSecret: %v, which kubeadm lists: %v", err, o.Data.Reveal())
		}
		return false
	}
	if theirErr != nil {
		t.Errorf("ParseSecret takes what kubeadm refuses with %v", theirErr)
		return false
	}
	var usages []string
	if s.Usages.Authentication {
		usages = append(usages, "authentication")
	}
	if s.Usages.Signing {
		usages = append(usages, "signing")
	}
	// kubeadm lists usages that no component of Kubernetes knows.
	theirUsages := slices.DeleteFunc(slices.Clone(theirs.Usages), func(usage string) bool { return usage != "authentication" && usage != "signing" })
	expires := time.Time{}
	if theirs.Expires != nil {
		expires = theirs.Expires.Time
	}
	if s.Token.Reveal() != theirs.Token.String() || s.Description != theirs.Description || !s.Expiration.Equal(expires) ||
		!slices.Equal(usages, theirUsages) || !slices.Equal(s.Groups, theirs.Groups) {
		t.Errorf("kubeadm reads %+v, ParseSecret %+v", theirs, s)
	}
	return true
}

// compareSweep: we delete the Secrets that the token cleaner deletes, but for an expiration that is no
// time, which is reported.
func compareSweep(t *testing.T, o *bootstraptoken.Object, now time.Time) {
	t.Helper()
	swept, err := bootstraptoken.Sweep([]*bootstraptoken.Object{o}, now)
	if err != nil {
		t.Fatal(err)
	}
	theirs := o.Namespace == "kube-system" && o.Type == "bootstrap.kubernetes.io/token" && secrets.HasExpired(apiSecret(o), now)
	reported := len(swept.Refused) == 1 && oneOf(swept.Refused[0].Err, stricter[:1])
	if ours := len(swept.Delete) == 1; ours != theirs && (ours || !reported && o.Deleted == nil) {
		t.Errorf("Sweep: Kubernetes deletes %v, ours %+v: %q", theirs, swept, o.Data.Reveal()["expiration"])
	}
}

// signs puts the exported parts of the bootstrap signer together as it does: what does so
// (pkg/controller/bootstrap, validateSecretForSigning) is not exported.
func signs(o *bootstraptoken.Object, now time.Time) bool {
	secret := apiSecret(o)
	id, ok := secrets.ParseName(secret.Name)
	return ok && secret.Namespace == "kube-system" && secret.Type == "bootstrap.kubernetes.io/token" &&
		secrets.GetData(secret, "token-id") == id && secrets.GetData(secret, "token-secret") != "" &&
		!secrets.HasExpired(secret, now) && secrets.GetData(secret, "usage-bootstrap-signing") == "true"
}

// compareSigner: whatever signs by our rules signs by Kubernetes', with the same bytes, and
// Kubernetes' other signatures are left alone.
func compareSigner(t *testing.T, o *bootstraptoken.Object, now time.Time) {
	t.Helper()
	theirs := signs(o, now)
	_, err := bootstraptoken.ParseSecretFor(o, bootstraptoken.Usages{Signing: true}, now)
	ours := err == nil
	if !ours && theirs && !oneOf(err, stricter, looserSigner) {
		t.Errorf("ParseSecretFor: %v, with which the signer signs", err)
	}
	if ours && !theirs {
		t.Errorf("we sign with %v, the signer does not", o)
	}
	const content = "the content"
	unsigned := map[string]string{"kubeconfig": content}
	signed, want := maps.Clone(unsigned), maps.Clone(unsigned)
	if id, ok := secrets.ParseName(o.Name); ok {
		if signed["jws-kubeconfig-"+id], err = jws.ComputeDetachedSignature(content, id, string(o.Data.Reveal()["token-secret"])); err != nil {
			t.Fatal(err)
		}
	}
	if ours {
		want = signed
	}
	if signing, err := bootstraptoken.Sign(unsigned, []*bootstraptoken.Object{o}, now); err != nil || !maps.Equal(signing.Data, want) {
		t.Errorf("we sign %+v, %v, want %v", signing, err, want)
	}
	if want = unsigned; theirs {
		want = signed
	}
	if signing, err := bootstraptoken.Sign(signed, []*bootstraptoken.Object{o}, now); err != nil || !maps.Equal(signing.Data, want) {
		t.Errorf("of what is signed we leave %+v, %v, want %v: %v", signing, err, want, o.Data.Reveal())
	}
}

// TestBootstrapTokenRandom compares bootstraptoken with the readers of Kubernetes on random
// Secrets.
func TestBootstrapTokenRandom(t *testing.T) {
	inShards(t, func(t *testing.T, s source) {
		users, decoded := 0, 0
		for range rounds() / 5 {
			time.Sleep(time.Duration(s.Int63n(int64(3 * time.Second))))
			o, bearer := s.tokenSecretCase(time.Now())
			user, good := compare(t, o, bearer)
			if user {
				users++
			}
			if good {
				decoded++
			}
			_, _, err := tokens.ParseToken(bearer)
			if _, ours := bootstraptoken.Parse(bearer); (err == nil) != (ours == nil) {
				t.Errorf("token %q: Kubernetes %v, ours %v", bearer, err, ours)
			}
			if t.Failed() {
				return
			}
		}
		if users < rounds()/100 || decoded < rounds()/100 {
			t.Errorf("%d users and %d Secrets of %d: too few to compare", users, decoded, rounds()/5)
		}
	})
}
