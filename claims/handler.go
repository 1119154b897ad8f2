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
	// Refused hears of every request that was not let through, and why; nil means that
	// nobody does. The error holds names and UIDs, no token.
	Refused func(r *http.Request, err error)
}

// Handler lets through only requests whose bearer token was issued to a workload on the
// very machine that the connection's client certificate was issued to; see [NewHandler].
type Handler struct {
	validator *Validator
	next      http.Handler
	opts      HandlerOptions
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
// The validator must have a Node ([ValidatorConfig]). Without Records, a
// certificate says nothing of its machine but its provider ID: the facts that need more,
// [FactAttestedUID], [FactRegisteredMachine] and [FactRegisteredMachineUID], must not be
// required then, since no request could pass. Otherwise, and where a handler is missing,
// the error is [refusal.CheckConfig].
func NewHandler(v *Validator, next http.Handler, opts HandlerOptions) (*Handler, error) {
	const unknown = FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID
	switch {
	case v == nil || v.c.Node.Machines == nil:
		return nil, refusal.Config("Validator", "without Node", "one with a NodeCheck")
	case next == nil:
		return nil, refusal.Config("next", "", "what requests are let through to")
	case opts.Records == nil && v.c.Node.Require&unknown != 0:
		return nil, refusal.Config("Require", (v.c.Node.Require&unknown).String()+" of certificates alone", "Records")
	}
	return &Handler{validator: v, next: next, opts: opts}, nil
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
	workload, status := &Workload{}, http.StatusForbidden
	var err error
	if workload.Node, err = h.node(r); err == nil {
		status, err = http.StatusUnauthorized, tokenErr
	}
	if err == nil {
		workload.Result, workload.Facts, err = h.validator.ValidateOnNode(r.Context(), token, workload.Node)
	}
	if err != nil {
		h.refuse(w, r, status, err)
		return
	}
	h.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), workloadKey{}, workload)))
}

// node finds out which node is at the other end of a connection.
func (h *Handler) node(r *http.Request) (*AttestedNode, error) {
	node, err := AttestedNodeFromTLS(r.TLS, h.opts.Certificate)
	if err != nil || h.opts.Records == nil {
		return node, err // and nobody is asked
	}
	cert := r.TLS.VerifiedChains[0][0]
	record, err := h.opts.Records(r.Context(), credentialID(cert))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, certificateError("a certificate that nobody recorded", "one that was issued through attestation", err)
	case err != nil || record == nil:
		return nil, retry("the certificate's record", err)
	}
	return AttestedNodeFromRecord(cert, record, h.opts.Certificate)
}

// refuse answers with the name of the check alone.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	check := "refused"
	if e, ok := errors.AsType[*Error](err); ok {
		check = string(e.Check)
	}
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
	if h.opts.Refused != nil {
		h.opts.Refused(r, err)
	}
	http.Error(w, "refused: "+check, status)
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
