package claims

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckBearer: a request without exactly one well-formed bearer token (RFC 6750, section
// 2.1).
const CheckBearer Check = "bearer-token"

// Workload is who sent a request that a handler of [NewHandler] let through.
type Workload struct {
	// Result is the token's.
	Result *Result
	// Node is the machine that the request came from.
	Node *AttestedNode
	// Facts is why the token belongs to that machine.
	Facts *NodeFacts
}

// HandlerOptions are the choices for [NewHandler]. Each zero field is a sensible default.
type HandlerOptions struct {
	// Records are those of the certificates that were issued through attestation. A
	// client's certificate must be among them, and which machine it was issued to is known
	// from there. Nil means that the certificate alone tells ([AttestedNodeFromTLS]): then
	// only one with a provider ID passes, since nothing else in it speaks of attestation.
	Records Records
	// Certificate are the options for reading the client's certificate.
	Certificate NodeCertificateOptions
	// Node finds out which attested node a request comes from, in place of Records and
	// Certificate, which must be unset then; an error that errors.Is does not find ErrRetry
	// in is a refusal. Nil means that they do.
	Node func(r *http.Request) (*AttestedNode, error)
	// Refused hears of every request that was not let through, and why; nil means that
	// nobody does. The error holds names and UIDs, no token.
	Refused func(r *http.Request, err error)
}

// Handler lets through only requests whose bearer token was issued to a workload on the
// very machine that the connection's client certificate was issued to; see [NewHandler].
type Handler struct {
	validator *Validator
	next      http.Handler
	node      func(r *http.Request) (*AttestedNode, error)
	refused   func(r *http.Request, err error)
}

// NewHandler lets through to next only requests whose bearer token was issued to a
// workload on the very machine that the connection's client certificate was issued to:
// mutual TLS with the node's certificate, and the workload's token. The server's tls.Config
// asks for a client certificate and verifies it (tls.RequireAndVerifyClientCert, ClientCAs
// a CA that signs for attested nodes only).
//
// next finds out who it is with [WorkloadFrom]; the request that it gets has no
// Authorization header any more. Other requests are answered with the name of the check
// that failed and nothing else: 403 without a good certificate, 401 without a good token
// (RFC 6750, section 3), 503 where no answer could be had.
//
// The validator must have a Node ([ValidatorConfig]). Without Records and Node, a
// certificate says nothing of its machine but its provider ID: the facts that need more,
// [FactAttestedUID], [FactRegisteredMachine] and [FactRegisteredMachineUID], must not be
// required then, since no request could pass. Otherwise, and where a handler is missing,
// the error is [refusal.CheckConfig].
func NewHandler(v *Validator, next http.Handler, opts HandlerOptions) (*Handler, error) {
	switch {
	case v == nil || v.c.Node.Machines == nil:
		return nil, refusal.Config("Validator", "without Node", "one with a NodeCheck")
	case next == nil:
		return nil, refusal.Config("next", "", "what requests are let through to")
	}
	h := &Handler{validator: v, next: next, node: opts.Node, refused: opts.Refused}
	certificate, records := opts.Certificate, opts.Records
	switch unknown := v.c.Node.Require & (FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID); {
	case opts.Node != nil && (opts.Records != nil || certificate.RequireProviderID || certificate.Now != nil):
		return nil, refusal.Config("Node", "beside Records or Certificate", "one or the other")
	case opts.Node != nil:
	case opts.Records != nil:
		h.node = func(r *http.Request) (*AttestedNode, error) { return records.node(r, certificate) }
	case unknown != 0:
		return nil, refusal.Config("Require", unknown.String()+" of certificates alone", "Records or a Node")
	default:
		h.node = func(r *http.Request) (*AttestedNode, error) { return AttestedNodeFromTLS(r.TLS, certificate) }
	}
	return h, nil
}

// ServeHTTP decides about one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, tokenErr := bearer(r.Header)
	r = r.Clone(r.Context())
	r.Header.Del("Authorization") // nobody after this may see or repeat it
	if h == nil || h.validator == nil {
		http.Error(w, "refused: configuration", http.StatusServiceUnavailable)
		return
	}
	node, err := h.node(r)
	if err == nil && node == nil {
		err = certificateError("no node", "one", nil)
	}
	if err != nil {
		h.refuse(w, r, http.StatusForbidden, err)
		return
	}
	if tokenErr != nil {
		h.refuse(w, r, http.StatusUnauthorized, tokenErr)
		return
	}
	result, facts, err := h.validator.ValidateOnNode(r.Context(), token, node)
	if err != nil {
		h.refuse(w, r, http.StatusUnauthorized, err)
		return
	}
	workload := &Workload{Result: result, Node: node, Facts: facts}
	h.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), workloadKey{}, workload)))
}

// refuse answers with the name of the check alone.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	check := nameOf(err)
	switch {
	case errors.Is(err, ErrRetry):
		status, check = http.StatusServiceUnavailable, "retry"
		w.Header().Set("Retry-After", "1")
	case status == http.StatusUnauthorized && check == string(CheckBearer):
		w.Header().Set("WWW-Authenticate", "Bearer")
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", error_description="`+check+`"`)
	}
	w.Header().Set("Cache-Control", "no-store")
	if h.refused != nil {
		h.refused(r, err)
	}
	http.Error(w, "refused: "+check, status)
}

// nameOf is the name of the check that failed; "refused" where there is none.
func nameOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Check)
	}
	return "refused"
}

// bearer returns the one bearer token of a request.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", &Error{Check: CheckBearer, Got: "no Authorization header, or several", Want: "one"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > jws.MaxTokenSize {
		return "", &Error{Check: CheckBearer, Got: "no bearer token", Want: "Bearer and one token"}
	}
	return token, nil
}

type workloadKey struct{}

// WorkloadFrom returns who sent a request, in a handler that [NewHandler] lets it through to; false
// anywhere else.
func WorkloadFrom(ctx context.Context) (*Workload, bool) {
	w, ok := ctx.Value(workloadKey{}).(*Workload)
	return w, ok
}
