package claims

// KubernetesError is a refusal by a [KubernetesValidator], in the words of kube-apiserver
// 1.36.
type KubernetesError struct {
	// Message is what kube-apiserver says, as in the status.error of a TokenReview; it
	// is the whole text of this error. Names and UIDs of objects may stand in it, no
	// token. Where it comes from the object getter it is the getter's text: one that
	// speaks as the API server does, see [NewNotFound], makes it equal.
	Message string
	// Reason is the check that failed, with both values. It is never nil in an error of
	// this package.
	Reason *Error
}

// Error returns the message of kube-apiserver.
func (e *KubernetesError) Error() string {
	if e == nil {
		return "claims: an error that is nil"
	}
	return e.Message
}

// Unwrap lets errors.Is find the check, [ErrRetry] where no answer could be had, and
// errors.As the cause.
func (e *KubernetesError) Unwrap() error {
	if e == nil || e.Reason == nil {
		return nil
	}
	return e.Reason
}
