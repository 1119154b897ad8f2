package bootstraptoken

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// View writes tokens as `kubeadm token list` does. The zero View hides the tokens'
// secrets, where kubeadm shows them.
type View struct {
	// InsecureShowSecrets writes whole tokens. Whoever reads the output, the terminal's
	// scrollback and the log of a build job among them, can join the cluster.
	InsecureShowSecrets bool
}

// names returns the usages in the words of the Secret's keys, sorted.
func (u Usages) names() (names []string) {
	for _, usage := range u.fields() {
		if *usage.allowed {
			names = append(names, strings.TrimPrefix(usage.key, "usage-bootstrap-"))
		}
	}
	slices.Sort(names)
	return names
}

// Table returns what `kubeadm token list` prints (cmd/kubeadm/app/cmd/token.go,
// formatBootstrapToken): a header and a line for each secret, or nothing for none, with
// the columns TOKEN, TTL, EXPIRES, USAGES, DESCRIPTION and EXTRA GROUPS. The time to live
// is the one at now; "<invalid>" is an expired token, "<forever>" and "<never>" one
// without expiration, "<none>" what is not set.
//
// For one secret it is kubeadm's text byte for byte, but for its token unless secrets are
// shown. For several the columns stand below each other, where kubeadm aligns each line
// for itself. A character of the description that does not print, such as a line break or
// a terminal's escape, is written as Go writes it in a quoted string.
func (v View) Table(secrets []*Secret, now time.Time) string {
	if len(secrets) == 0 {
		return ""
	}
	const none = "<none>"
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 10, 4, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, s := range secrets {
		token := s.Token.String()
		if v.InsecureShowSecrets {
			token = s.Token.Reveal()
		}
		ttl, expires := "<forever>", "<never>"
		if !s.Expiration.IsZero() {
			ttl, expires = shortDuration(s.Expiration.Sub(now)), s.Expiration.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%-9s\t%s\t%-22s\t%-56s\t%s\n", token, ttl, expires,
			cmp.Or(strings.Join(s.Usages.names(), ","), none), cmp.Or(refusal.Escape(s.Description), none), cmp.Or(strings.Join(s.Groups, ","), none))
	}
	_ = w.Flush() // neither can fail: a strings.Builder takes everything
	return out.String()
}

// shortDuration writes the largest unit that is not zero
// (k8s.io/apimachinery/pkg/util/duration, ShortHumanDuration).
func shortDuration(d time.Duration) string {
	switch {
	case d <= -2*time.Second:
		return "<invalid>"
	case d < 0:
		return "0s"
	}
	const day = 24 * time.Hour
	unit, name := time.Second, "s"
	for larger, n := range map[time.Duration]string{time.Minute: "m", time.Hour: "h", day: "d", 365 * day: "y"} {
		if larger <= d && larger > unit {
			unit, name = larger, n
		}
	}
	return strconv.Itoa(int(d/unit)) + name
}
