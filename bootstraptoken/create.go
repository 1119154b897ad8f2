package bootstraptoken

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// defaultTTL is the lifetime of a token if none is given, as in kubeadm
// (cmd/kubeadm/app/constants, DefaultTokenDuration).
const defaultTTL = 24 * time.Hour

// nodeGroup is the extra group of the tokens that kubeadm creates: the one that kubeadm
// allows to file a node's request (cmd/kubeadm/app/constants, NodeBootstrapTokenAuthGroup).
const nodeGroup = groupPrefix + "kubeadm:default-node-token"

// CreateOptions are the options of [Create]. The zero CreateOptions give the token that
// `kubeadm token create` gives.
type CreateOptions struct {
	// Token is the token; the zero Token means a new one from [Generate].
	Token Token
	// Description is free text for people.
	Description string
	// TTL is how long the token lives, at least one second; 0 means 24 hours. For kubeadm, 0
	// means forever: see InsecureNeverExpires.
	TTL time.Duration
	// InsecureNeverExpires makes a token that lives until it is deleted. TTL must be 0.
	InsecureNeverExpires bool
	// Usages are the allowed usages; the zero Usages mean both.
	Usages Usages
	// Groups are the extra groups; nil means system:bootstrappers:kubeadm:default-node-token if
	// the token may authenticate, and a non-nil empty slice means none.
	Groups []string
	// Labels and Annotations are the Secret's, for programs that look for tokens.
	Labels, Annotations map[string]string
}

// Create makes a token Secret whose lifetime begins at now, as `kubeadm token create` does.
// The caller stores its [Secret.Object], and shows its token once. The errors are
// [refusal.CheckConfig], also if now is the zero time, and the errors of [Secret.Object].
func Create(opts CreateOptions, now time.Time) (*Secret, error) {
	switch {
	case now.IsZero():
		return nil, errClock()
	case opts.TTL < 0 || 0 < opts.TTL && opts.TTL < time.Second:
		return nil, refusal.Config("TTL", opts.TTL.String(), "0, or at least 1s")
	case opts.InsecureNeverExpires && opts.TTL != 0:
		return nil, refusal.Config("TTL", opts.TTL.String()+" for a token that never expires", "0")
	}
	s := &Secret{Token: opts.Token, Description: opts.Description, Usages: opts.Usages, Groups: slices.Clone(opts.Groups),
		Labels: maps.Clone(opts.Labels)}
	if len(opts.Annotations) > 0 {
		s.Annotations = secret.New(maps.Clone(opts.Annotations))
	}
	if s.Token.IsZero() {
		s.Token = Generate()
	}
	if !opts.InsecureNeverExpires {
		s.Expiration = now.Add(cmp.Or(opts.TTL, defaultTTL)).UTC().Truncate(time.Second)
	}
	if s.Usages == (Usages{}) {
		s.Usages = Usages{Signing: true, Authentication: true}
	}
	if opts.Groups == nil && s.Usages.Authentication {
		s.Groups = []string{nodeGroup}
	}
	if _, err := s.Object(); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseID reads what `kubeadm token delete` accepts, a token's ID or a whole token, and
// returns the ID. The error is "bootstrap-token".
func ParseID(s string) (string, error) {
	if isID(s) {
		return s, nil
	}
	token, err := Parse(s)
	if err != nil {
		return "", &Error{Check: checkToken, Got: strconv.Itoa(len(s)) + " bytes", Want: wantID + " or " + wantToken}
	}
	return token.ID(), nil
}

// View writes tokens as `kubeadm token list` does. The zero View hides the tokens' secrets,
// whereas kubeadm shows them.
type View struct {
	// InsecureShowSecrets writes whole tokens. Anyone who reads the output, including the
	// terminal's scrollback or the log of a build job, can join the cluster.
	InsecureShowSecrets bool
}

// names returns the usages as named in the Secret's keys, sorted.
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
// formatBootstrapToken): a header and a line for each secret, or nothing without secrets,
// with the columns TOKEN, TTL, EXPIRES, USAGES, DESCRIPTION and EXTRA GROUPS. The time to live
// is as of now; "<invalid>" means an expired token, "<forever>" and "<never>" one without
// expiration, and "<none>" a value that is not set.
//
// For one secret it is kubeadm's text byte for byte, except for the token unless secrets are
// shown. For several, the columns are aligned, whereas kubeadm aligns each line by itself. A
// nonprinting character of the description, such as a line break or a terminal escape, is
// written as in a quoted Go string.
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
	_ = w.Flush() // neither can fail: a strings.Builder accepts everything
	return out.String()
}

// shortDuration writes d in its largest nonzero unit (k8s.io/apimachinery/pkg/util/duration,
// ShortHumanDuration).
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
