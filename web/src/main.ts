import { createApp } from 'vue'
import App from './app.vue'
import { createLanguages, firstLanguage, rememberedLanguage } from './i18n/languages'
import { router } from './router'
import './styles/page.css'

const language = firstLanguage(rememberedLanguage(), navigator.languages)
createApp(App).use(createLanguages(language)).use(router).mount('#app')
