//go:build !kubernetes137

package kubernetes

import (
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/nodeattest/nodeattest/claims/apiserver"
)

// releases are the possible releases of Kubernetes' modules here.
var releases = []release{{name: "1.36.3", as: apiserver.Kubernetes136}}

// knowsHooks says whether the generator binds tokens to webhook configurations.
const knowsHooks = false

// theirClaims is Kubernetes' generator.
func theirClaims(sa core.ServiceAccount, b theirBound, seconds, warnAfter int64, audiences []string) (*jwt.Claims, any, error) {
	return serviceaccount.Claims(sa, b.pod, b.secret, b.node, seconds, warnAfter, audiences)
}
