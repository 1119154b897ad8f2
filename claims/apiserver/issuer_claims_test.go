package apiserver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

// A generatedCase is one of Kubernetes' own cases for the making of claims.
type generatedCase struct {
	Now            int64         `json:"now_unix"`
	Expiration     int64         `json:"exp"`
	WarnAfter      int64         `json:"warnafter"`
	Audiences      []string      `json:"aud"`
	ServiceAccount *corpusObject `json:"sa"`
	Pod            *corpusObject `json:"pod"`
	Secret         *corpusObject `json:"secret"`
	Node           *corpusObject `json:"node"`
	Error          string        `json:"expect_err"`
	Public         struct {
		Subject   string   `json:"sub"`
		Audiences []string `json:"aud"`
		Expiry    int64    `json:"exp"`
		NotBefore int64    `json:"nbf"`
		IssuedAt  int64    `json:"iat"`
		ID        string   `json:"jti"`
	} `json:"expect_public"`
	Private json.RawMessage `json:"expect_private"`
}

// corpusObject is the metadata of an object.
type corpusObject struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

func (o *corpusObject) object() *claims.Object {
	if o == nil {
		return nil
	}
	return &claims.Object{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

func TestNewClaimsLikeKubernetes(t *testing.T) {
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory with kubernetes/serviceaccount_claims_cases.json")
	}
	data, err := os.ReadFile(filepath.Join(dir, "kubernetes", "serviceaccount_claims_cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Claims []generatedCase `json:"claims"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Claims) != 9 {
		t.Fatalf("%d cases, want 9", len(file.Claims))
	}
	for i, tt := range file.Claims {
		b := Bound{ServiceAccount: tt.ServiceAccount.object(), Pod: tt.Pod.object(), Secret: tt.Secret.object(), Node: tt.Node.object()}
		c, err := NewClaims(b, tt.Expiration, tt.WarnAfter, tt.Audiences, "fixed", time.Unix(tt.Now, 0))
		if tt.Error != "" {
			if err == nil || err.Error() != tt.Error || c != nil {
				t.Errorf("%d: got %v, want %s", i, err, tt.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		p := tt.Public
		if c.Subject != p.Subject || !slices.Equal(c.Audiences, p.Audiences) || c.ID != p.ID || c.Expiry != (claims.NumericDate{Unix: p.Expiry, Present: true}) ||
			c.NotBefore != (claims.NumericDate{Unix: p.NotBefore, Present: true}) || c.IssuedAt != (claims.NumericDate{Unix: p.IssuedAt, Present: true}) {
			t.Errorf("%d: got %+v, want %+v", i, c, p)
		}
		want, err := claims.Parse(tt.Private)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c.Kubernetes, want.Kubernetes) {
			t.Errorf("%d: got %+v, want %+v", i, c.Kubernetes, want.Kubernetes)
		}
	}
}

func TestNewClaimsRefuses(t *testing.T) {
	account := &claims.Object{Namespace: "ns", Name: "sa", UID: "u"}
	for what, b := range map[string]Bound{
		"no account":      {},
		"secret and pod":  {ServiceAccount: account, Secret: &claims.Object{}, Pod: &claims.Object{}},
		"secret and node": {ServiceAccount: account, Secret: &claims.Object{}, Node: &claims.Object{}},
		"all three":       {ServiceAccount: account, Secret: &claims.Object{}, Node: &claims.Object{}, Pod: &claims.Object{}},
	} {
		t.Run(what, func(t *testing.T) {
			if c, err := NewClaims(b, 600, 0, nil, "", time.Unix(1, 0)); c != nil || !errors.Is(err, reasonInternalError) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}
