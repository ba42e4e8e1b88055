package dashboards

// boards are all of them, in the order in which somebody looks for a cause.
func boards() []board {
	return []board{overLimit(), ruleDetail(), pipeline(), gate(), history()}
}
