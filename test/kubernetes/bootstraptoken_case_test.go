package kubernetes

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
)

const (
	tokenID     = "abc123"
	tokenSecret = "0123456789abcdef"
)

// tokenObject is a good token Secret at any time.
func tokenObject() *bootstraptoken.Object {
	return &bootstraptoken.Object{
		Namespace: "kube-system", Name: "bootstrap-token-" + tokenID, UID: "u", Type: "bootstrap.kubernetes.io/token",
		Data: secret.New(map[string][]byte{
			"token-id": []byte(tokenID), "token-secret": []byte(tokenSecret),
			"usage-bootstrap-signing": []byte("true"), "usage-bootstrap-authentication": []byte("true"),
		}),
	}
}

// apiSecret is the same Secret for Kubernetes.
func apiSecret(o *bootstraptoken.Object) *v1.Secret {
	s := &v1.Secret{Type: v1.SecretType(o.Type), Data: o.Data.Reveal()}
	s.Namespace, s.Name = o.Namespace, o.Name
	if o.Deleted != nil {
		s.DeletionTimestamp = &metav1.Time{Time: *o.Deleted}
	}
	return s
}

// expirations are texts around the time now, some of which only lax readers take.
func (s source) expiration(now time.Time) string {
	t := now.Add(pick(s, 0, 1, -1, time.Second, -time.Second, time.Hour, -time.Hour))
	zone := t.In(time.FixedZone("", pick(s, 0, 3600, -5400)))
	return pick(s, t.UTC().Format(time.RFC3339), t.UTC().Format(time.RFC3339Nano), zone.Format(time.RFC3339Nano), "", "never",
		strings.ToLower(t.UTC().Format(time.RFC3339)), "2999-01-01T1:00:00Z", "2999-01-01T01:00:00,5Z", "2999-01-01T01:00:00+24:00",
		"2999-01-01T01:00:00+01:60", "0001-01-01T00:00:00Z", "2999-01-01 01:00:00Z", "2999-02-30T00:00:00Z", "2999-01-01T00:00:00Z\n")
}

// tokenSecretCase is a token Secret of which little is wrong, and a bearer that mostly
// knows it.
func (s source) tokenSecretCase(now time.Time) (*bootstraptoken.Object, string) {
	o := tokenObject()
	o.Namespace = pick(s, o.Namespace, o.Namespace, o.Namespace, o.Namespace, o.Namespace, o.Namespace, "default")
	set := func(in int, key string, values ...string) {
		if s.oneIn(in) {
			o.Data.Reveal()[key] = []byte(pick(s, values...))
		}
	}
	set(12, "token-id", "", "other1", "ABC123", "abc1234", tokenID+"\n")
	set(12, "token-secret", "", "short", strings.ToUpper(tokenSecret), tokenSecret+"0", "fedcba9876543210", tokenSecret+"\n")
	set(2, "expiration", s.expiration(now))
	usages := []string{"true", "true", "false", "", "True", "1", " true"}
	set(4, "usage-bootstrap-signing", usages...)
	set(4, "usage-bootstrap-authentication", usages...)
	const group = "system:bootstrappers:"
	set(3, "auth-extra-groups", "", group+"a", group+"a,"+group+"b:c-d", group+"b,"+group+"a,"+group+"a", group, group+"a,", ","+group+"a",
		group+"A", group+"a-", "system:masters", group+"a, "+group+"b", group+"-", group+strings.Repeat("a", 256), group+strings.Repeat("a", 257), group+"a\n")
	set(12, "description", "", "a node pool", "no utf8 \xff", "line\nbreak")
	set(16, "auth-groups", group+"a")
	set(16, "usage-bootstrap-other", "true", "false")
	switch s.Intn(24) {
	case 0:
		delete(o.Data.Reveal(), pick(s, "token-id", "token-secret", "usage-bootstrap-signing", "usage-bootstrap-authentication"))
	case 1:
		o.Name = pick(s, "", "bootstrap-token-", "bootstrap-token-other1", "bootstrap-token-ABC123", "bootstrap-token-abc1234", "token-abc123")
	case 2:
		o.Type = pick(s, "", "Opaque", "bootstrap.kubernetes.io/Token")
	case 3:
		o.Deleted = &now
	case 4:
		o.Data = secret.Value[map[string][]byte]{}
	case 5:
		o.Data.Reveal()["expiration"] = append([]byte("2999-01-01T00:00:00Z"), make([]byte, s.Intn(2))...)
	}
	bearer := tokenID + "." + tokenSecret
	if s.oneIn(10) {
		bearer = pick(s, "", tokenID, bearer+"\n", " "+bearer, strings.ToUpper(bearer), "other1."+tokenSecret, tokenID+".fedcba9876543210", tokenID+".", bearer+"0")
	}
	return o, bearer
}
