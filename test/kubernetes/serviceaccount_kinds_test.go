package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/claims"
)

// kinds are the beginnings of all that the validator says. All shards together must see each.
var kinds = []string{
	"invalid bearer token", "invalid signature, no keys found", "go-jose/go-jose: error in cryptographic primitive",
	"token audiences", "service account token is not valid yet", "service account token has expired",
	"service account token is issued in the future", "service account UID", "secret UID", "pod UID", "node UID",
	"service account token has been invalidated", "serviceaccounts ", "resource name may not be empty", "etcd is away",
}

// kindOf is the beginning of a message, "" for none.
func kindOf(message string, more ...string) string {
	for _, kind := range slices.Concat(kinds, more) {
		if strings.HasPrefix(message, kind) {
			return kind
		}
	}
	if strings.HasSuffix(message, " has been deleted") {
		return "deleted"
	}
	return strings.SplitN(message, ":", 2)[0]
}

// wantKinds fails a test whose random cases do not reach everything that is said: whatever is not
// seen is not compared.
func wantKinds(t *testing.T, seen map[string]int, more ...string) {
	t.Helper()
	for _, kind := range slices.Concat([]string{"", "deleted"}, kinds, more) {
		if seen[kind] == 0 && kind != "invalid signature, no keys found" { // rare: only damaged tokens name another key
			t.Errorf("no case with %q: %v", kind, seen)
		}
	}
	if total := shards * rounds(); seen[""] < total/20 {
		t.Errorf("only %d of %d tokens were accepted", seen[""], total)
	}
	t.Logf("%v", seen)
}

func uidOf(o claims.Object) types.UID { return types.UID(o.UID) }

// generatedObject is an object that a token is issued for.
func (s source) generatedObject(namespace, name string) claims.Object {
	return claims.Object{Namespace: s.text(namespace), Name: s.text(name), UID: s.text(s.uid(name + "-uid"))}
}
