package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/claims"
)

const (
	issuer      = "https://kubernetes.default.svc"
	otherIssuer = "https://issuer.example"
	apiAudience = "https://kubernetes.default.svc"
	oneAudience = "vault"
	twoAudience = "gateway"
)

// A source makes random values that are more often good than not.
type source struct{ *rand.Rand }

// oneIn reports true once in n times.
func (s source) oneIn(n int) bool { return s.Intn(n) == 0 }

func pick[T any](s source, of ...T) T { return of[s.Intn(len(of))] }

// uid is the object's own UID, seldom another one or none.
func (s source) uid(own string) string {
	if s.oneIn(24) {
		return pick(s, "", "another-uid", own+" ", strings.ToUpper(own))
	}
	return own
}

// deleted is mostly no time, else one around the 60 seconds for which an object counts
// after its deletion, to the nanosecond.
func (s source) deleted(now time.Time) *time.Time {
	if !s.oneIn(6) {
		return nil
	}
	t := now.Add(-time.Minute).Add(pick(s, 0, 1, -1, time.Second, -time.Second, 30*time.Second, time.Hour, -time.Hour,
		time.Duration(s.Int63n(int64(4*time.Second)))-2*time.Second))
	return &t
}

// near is a claim around a time, in whole seconds, at times absent.
func (s source) near(t time.Time) claims.NumericDate {
	if s.oneIn(12) {
		return claims.NumericDate{}
	}
	return claims.NumericDate{Unix: t.Unix() + int64(s.Intn(5)-2), Present: true}
}

// text is a name as one has it, seldom one that tries the encoder.
func (s source) text(usual string) string {
	if s.oneIn(40) {
		return pick(s, "", "<&>", "a\"b\\c", "\u2028\u2029", "tab\tand\nline\r\b\f", "bad\xff\xfeutf8", "\U0001f511", "ns:app", usual+usual)
	}
	return usual
}

// objects are what there is in the cluster: for each kind nothing, an error or one object.
type objects struct {
	account, pod, secret, node, validating, mutating slot
}

type slot struct {
	claims.Object
	err error
}

var errAway = errors.New("etcd is away")

func (s source) slot(namespace, name string, now time.Time) slot {
	o := slot{Object: claims.Object{Namespace: namespace, Name: name, UID: s.uid(name + "-uid"), Deleted: s.deleted(now)}}
	if s.oneIn(30) {
		o.Name = "another"
	}
	if s.oneIn(40) {
		o.err = errAway
	}
	return o
}

func (s source) objects(now time.Time) *objects {
	return &objects{account: s.slot("ns", "app", now), pod: s.slot("ns", "pod", now), secret: s.slot("ns", "secret", now), node: s.slot("", "node", now),
		validating: s.slot("", "validating", now), mutating: s.slot("", "mutating", now)}
}

// errEmptyName is the error of a client of the API server before any request.
var errEmptyName = errors.New("resource name may not be empty")

// find answers as the API server's clients do.
func (o *slot) find(resource, namespace, name string) error {
	switch {
	case name == "":
		return errEmptyName
	case o.err != nil:
		return o.err
	case o.Name != name || o.Namespace != namespace:
		return apierrors.NewNotFound(v1.Resource(resource), name)
	}
	return nil
}

// meta is the object's metadata. Times of the API have no fractions, but the code under
// test accepts any value.
func (o *slot) meta() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: types.UID(o.UID)}
	if o.Deleted != nil {
		m.DeletionTimestamp = &metav1.Time{Time: *o.Deleted}
	}
	return m
}

// theirs is the getter of Kubernetes' validator.
type theirs struct{ *objects }

func (o theirs) GetServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return &v1.ServiceAccount{ObjectMeta: o.account.meta()}, o.account.find("serviceaccounts", namespace, name)
}

func (o theirs) GetPod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	return &v1.Pod{ObjectMeta: o.pod.meta()}, o.pod.find("pods", namespace, name)
}

func (o theirs) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return &v1.Secret{ObjectMeta: o.secret.meta()}, o.secret.find("secrets", namespace, name)
}

func (o theirs) GetNode(_ context.Context, name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: o.node.meta()}, o.node.find("nodes", "", name)
}

func (o theirs) GetValidatingWebhookConfiguration(_ context.Context, name string) (*admissionv1.ValidatingWebhookConfiguration, error) {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: o.validating.meta()}, o.validating.find("validatingwebhookconfigurations", "", name)
}

func (o theirs) GetMutatingWebhookConfiguration(_ context.Context, name string) (*admissionv1.MutatingWebhookConfiguration, error) {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: o.mutating.meta()}, o.mutating.find("mutatingwebhookconfigurations", "", name)
}

// ours is the getter of ours, for the same objects; for webhook configurations only with hooks.
type ours struct {
	*objects
	hooks bool
}

// ReadsLive: the case is the API server.
func (ours) ReadsLive() {}

func ourError(resource, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return claims.NewNotFound(resource, name)
	}
	return err
}

func (o ours) Get(_ context.Context, resource, namespace, name string) (*claims.Object, error) {
	slots := map[string]*slot{"serviceaccounts": &o.account, "pods": &o.pod, "secrets": &o.secret, "nodes": &o.node}
	if o.hooks {
		slots["validatingwebhookconfigurations"], slots["mutatingwebhookconfigurations"] = &o.validating, &o.mutating
	}
	found := slots[resource]
	if found == nil {
		return nil, claims.NewNotFound(resource, name)
	}
	if err := found.find(resource, namespace, name); err != nil {
		return nil, ourError(resource, name, err)
	}
	object := found.Object
	if resource == "pods" {
		object.ServiceAccountName, object.NodeName = "app", "node"
	}
	return &object, nil
}

func (s source) ref(name string) *claims.Ref {
	if !s.oneIn(2) {
		return nil
	}
	return &claims.Ref{Name: s.text(name), UID: s.uid(name + "-uid")}
}

// claimSet is a random claim set around the time now.
func (s source) claimSet(now time.Time) *claims.Claims {
	c := &claims.Claims{
		Issuer:    issuer,
		Subject:   s.text("system:serviceaccount:ns:app"),
		Audiences: s.audiences(),
		Expiry:    s.near(now.Add(pick(s, time.Hour, time.Hour, time.Hour, -time.Minute, 0))),
		NotBefore: s.near(now.Add(pick(s, 0, 0, 0, time.Minute, -time.Hour))),
		IssuedAt:  s.near(now.Add(pick(s, 0, 0, 0, time.Minute, -time.Hour))),
		ID:        s.text("3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10"),
		Kubernetes: claims.Private{
			Namespace:      s.text("ns"),
			ServiceAccount: claims.Ref{Name: s.text("app"), UID: s.uid("app-uid")},
			Pod:            s.ref("pod"), Secret: s.ref("secret"), Node: s.ref("node"),
			WarnAfter: pick(s, claims.NumericDate{}, claims.NumericDate{Present: true}, s.near(now), s.near(now.Add(-time.Hour))),
		},
	}
	if s.oneIn(4) {
		s.hook(c)
	}
	if s.oneIn(30) {
		c.Issuer = pick(s, "", otherIssuer, "https://stranger.example", issuer+"/", "kubernetes/serviceaccount")
	}
	return c
}

// hook binds a claim set to webhook configurations, mostly as kube-apiserver 1.37 does.
func (s source) hook(c *claims.Claims) {
	k := &c.Kubernetes
	if !s.oneIn(8) {
		k.Pod, k.Secret, k.Node = nil, nil, nil
		c.Expiry = claims.NumericDate{Unix: c.IssuedAt.Unix + int64(pick(s, 600, 600, 600, 601)), Present: true}
	}
	k.ValidatingWebhookConfiguration = s.ref("validating")
	if k.ValidatingWebhookConfiguration == nil || s.oneIn(8) {
		k.MutatingWebhookConfiguration = s.ref("mutating")
	}
	if !s.oneIn(12) {
		k.Attestations = &claims.Attestations{AdmissionReviewAPIGroups: s.groups()}
	}
}

// groups are API groups that a token attests, mostly one.
func (s source) groups() []string {
	return pick(s, []string{s.text("apps")}, []string{s.text("apps")}, []string{"*"}, []string{""}, []string{"apps", "batch"}, []string{})
}

// audiences are the audiences of a token or a review: sometimes empty.
func (s source) audiences() []string {
	var list []string
	for _, a := range []string{apiAudience, oneAudience, twoAudience, "<stranger>"} {
		if s.oneIn(2) {
			list = append(list, a)
		}
	}
	if s.oneIn(8) && len(list) > 0 {
		list = append(list, list[0])
	}
	s.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// bend changes one member of a claim set to something that no API server writes.
func (s source) bend(payload []byte) []byte {
	var set map[string]any
	d := json.NewDecoder(strings.NewReader(string(payload)))
	d.UseNumber()
	if err := d.Decode(&set); err != nil {
		panic(fmt.Sprintf("a claim set that is no JSON: %v", err))
	}
	at := set
	if inner, ok := set["kubernetes.io"].(map[string]any); ok && s.oneIn(2) {
		at = inner
	}
	name := pick(s, "exp", "nbf", "iat", "aud", "iss", "sub", "jti", "kubernetes.io", "pod", "node", "secret", "serviceaccount", "warnafter", "namespace", "Iss", "extra",
		"attestations", "validatingwebhookconfiguration", "mutatingwebhookconfiguration")
	at[name] = pick[any](s, nil, "", oneAudience, 1, -1, 1.5, 1e300, true, []any{}, []any{oneAudience}, []any{1}, []any{nil}, map[string]any{},
		map[string]any{"name": nil, "uid": "pod-uid"}, map[string]any{"name": 7},
		map[string]any{"admissionReviewAPIGroups": nil}, map[string]any{"admissionReviewAPIGroups": []any{nil}, "x": []any{}}, map[string]any{"x": nil})
	if s.oneIn(3) {
		delete(at, name)
	}
	bent, err := json.Marshal(set)
	if err != nil {
		panic(fmt.Sprintf("encoding JSON: %v", err))
	}
	return bent
}
