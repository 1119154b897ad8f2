package externalsigner

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The names of the objects that tokens are issued for, in the namespace default.
const (
	namespace = "default"
	account   = "builder"
	podName   = "bound"
)

// makePod makes a service account, a Node and a pod there, and returns the pod.
func (s *apiServer) makePod(t *testing.T) *corev1.Pod {
	t.Helper()
	core, options := s.admin.CoreV1(), metav1.CreateOptions{}
	eventually(t, func() error { // the server makes the namespace after it is ready
		made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
		_, err := core.ServiceAccounts(namespace).Create(t.Context(), made, options)
		return err
	})
	if _, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: podName}}, options); err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	eventually(t, func() (err error) { // admission learns of the service account a moment later
		pod, err = core.Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName},
			Spec: corev1.PodSpec{
				NodeName: podName, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
			},
		}, options)
		return err
	})
	return pod
}

// issue requests a token for the pod.
func (s *apiServer) issue(ctx context.Context, pod *corev1.Pod) (string, error) {
	made, err := s.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// token is issue for a request that must succeed. A server learns of a pod a moment later.
func (s *apiServer) token(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	var token string
	eventually(t, func() (err error) {
		if token, err = s.issue(t.Context(), pod); !apierrors.IsNotFound(err) && err != nil {
			t.Fatal(err)
		}
		return err
	})
	return token
}

// review returns why TokenReview does not authenticate a token, or nil if it does.
func (s *apiServer) review(ctx context.Context, token string) error {
	made, err := s.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return err
	case !made.Status.Authenticated:
		return errors.New("TokenReview refuses: " + made.Status.Error)
	}
	return nil
}

// validators decide on tokens of the cluster's issuer, strictly and as kube-apiserver does, with live objects.
type validators struct {
	strict     *claims.Validator
	kubernetes *apiserver.Validator
}

func (s *apiServer) validators(t *testing.T, keys jws.KeySet) *validators {
	t.Helper()
	objects, err := boundtokens.New(s.user(t, "admin", "system:masters"), boundtokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, audiences := new(validators), []string{controlplane.Issuer}
	if v.strict, err = claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{controlplane.Issuer: keys}, Objects: objects, Audiences: audiences,
		InsecureAPIServerAudience: true, InsecureAllowReplay: true,
	}); err != nil {
		t.Fatal(err)
	}
	if v.kubernetes, err = apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: audiences, Keys: keys, Objects: objects, Audiences: audiences,
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// validate returns the errors of both validators.
func (v *validators) validate(ctx context.Context, token string) error {
	_, strict := v.strict.Validate(ctx, token)
	_, kubernetes := v.kubernetes.Validate(ctx, token)
	return errors.Join(strict, kubernetes)
}
