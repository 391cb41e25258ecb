dpicl ask support.team "I was charged twice in March."
dpicl ask support.team "I was charged twice in March."
dpicl budget
