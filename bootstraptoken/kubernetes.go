package bootstraptoken

import (
	"strings"
	"time"
)

// kubernetesSigns reports whether Kubernetes' bootstrap signer signs with the token Secret, and if
// so with which key and until when; the zero time is never (pkg/controller/bootstrap,
// bootstrapsigner.go and util.go; k8s.io/cluster-bootstrap/util/secrets, GetExpiration).
// Beside type and namespace it looks at name, ID, a secret that is not empty, expiration and usage,
// and not at deletion, groups and the form of the secret. It reads an expiration as
// time.Parse does, and an empty one as never.
func kubernetesSigns(o *Object, now time.Time) (key []byte, end time.Time, ok bool) {
	data := o.Data.Reveal()
	id, named := strings.CutPrefix(o.Name, SecretNamePrefix)
	if !named || !isID(id) || string(data[keyID]) != id || len(data[keySecret]) == 0 || string(data[keySigning]) != "true" {
		return nil, time.Time{}, false
	}
	if text := string(data[keyExpiration]); text != "" {
		end, _ = time.Parse(time.RFC3339, text) // the zero time, which is over, for what is no time
		if !now.Before(end) {
			return nil, time.Time{}, false
		}
	}
	return data[keySecret], end, true
}
