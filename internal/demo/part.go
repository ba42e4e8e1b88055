package demo

import "time"

// part is what an abuser has to do in one phase, as far as it can tell by itself: go over its limit in shadow, be
// refused once rules block. Judge looks for the same in what the gateway stamped; here it only says when a phase may end.
type part struct {
	volley int // requests that, all within one window, are over the abuser's limit
	probe  bool
	left   int // times that are still to come; 0: played
	from   int // of the answers, those before belong to an earlier phase
	played chan struct{}
}

// begin starts the abuser's part of a phase, in which rules block if probe says so. The channel closes when it is played.
func (a *actor) begin(probe bool) <-chan struct{} {
	a.part = part{volley: a.client.Kind.volley(), probe: probe, left: 1, from: len(a.answers), played: make(chan struct{})}
	if probe && a.client.Kind == KindReturning {
		a.part.left = 2
	}
	return a.part.played
}

// volley is how many requests of an abuser in one window are over its limit.
func (k Kind) volley() int {
	switch k {
	case KindStuffer:
		return limitSignIn + 1
	case KindScraper:
		return limitCatalog + 1
	}
	return limitTokens + 1
}

// note looks at the newest of an actor's answers.
func (p *part) note(answers []Answer) {
	if p.left == 0 {
		return
	}
	of := answers[p.from:]
	if p.probe && p.stopped(of) || !p.probe && p.over(of) {
		if p.left--; p.left == 0 {
			close(p.played)
		}
	}
}

// stopped reports whether the newest answer is the first refusal of a block.
func (p *part) stopped(of []Answer) bool {
	n := len(of) - 1
	return of[n].Refused() && (n == 0 || !of[n-1].Refused())
}

// over reports whether the newest answers are a volley that was answered within a window. The gateway's stamps lie
// between Sent and Received, so it is over by them too.
func (p *part) over(of []Answer) bool {
	first := len(of) - p.volley
	return first >= 0 && of[len(of)-1].Received.Sub(of[first].Sent) < time.Duration(window)
}
